"""Search in a large SQLite store: how long a first page takes, and how long the index takes to catch up.

A million messages in a thousand sessions are written as a program would write them, a thousand at a time.
After every ten thousand messages, a search immediately follows and has to wait until all of them are indexed:
that is the time to catch up. Then the benchmark searches the first pages for words that are in every message,
in few and in one, with and without a session or a user. Times are wall-clock times: medians of a few
searches, each with a new word where there is one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from turnstate import Message, SessionManager

from .peer_process import ROOT
from .window_print import goal, ms, table

ENTRIES = 1_000_000
OF_A_SESSION = 1_000
AT_ONCE = 10_000
"""Messages between two searches while the store is filled: a search waits until that many are indexed."""

PAGE = 20
ROUNDS = 7
USERS = 50

PAGE_GOAL, CATCH_UP_GOAL = 0.020, 1.0

_PLACES = (
    "billing catalog cache deploy export gateway invoice ledger mailer nightly pool queue report".split()
)


def main(entries: int = ENTRIES) -> None:
    """Print both tables."""
    home = ROOT / ".bench"
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="search-") as folder:
        asyncio.run(_measured(Path(folder) / "store.db", entries))


async def _measured(file: Path, entries: int) -> None:
    async with await SessionManager.open(f"sqlite:///{file}") as sessions:
        caught_up = await _filled(sessions, entries)
        _report_growth(caught_up, entries)
        await _searched(sessions, entries)
    print(f"{entries:,} messages, {os.path.getsize(file) / 1e6:,.0f} MB")


async def _filled(sessions: SessionManager, entries: int) -> list[float]:
    """Fill the store; return how long each search waited for the messages before it."""
    spent, started = list[float](), time.perf_counter()
    for first in range(0, entries, AT_ONCE):
        for number in range(first, min(first + AT_ONCE, entries), OF_A_SESSION):
            session = await sessions.create(user=_user(number), id=f"session-{number // OF_A_SESSION}")
            await session.append(*map(_message, range(number, min(number + OF_A_SESSION, entries))))
        start = time.perf_counter()
        await _page(sessions, "nowhere")
        spent.append(time.perf_counter() - start)
        if (first + AT_ONCE) % (10 * AT_ONCE) == 0:
            print(f"  {first + AT_ONCE:,} written in {time.perf_counter() - started:,.0f} s", flush=True)
    return spent


def _report_growth(spent: Sequence[float], entries: int) -> None:
    print(f"\nCatching up: {AT_ONCE:,} messages were just written, and a search waits for the index (ms).")
    tenth = max(1, len(spent) // 10)
    parts = {"at the beginning": spent[:tenth], "at the end": spent[-tenth:], "all": spent}
    rows = [[name, ms(statistics.median(part)), ms(max(part))] for name, part in parts.items()]
    table((f"of {entries:,}", "median", "longest"), rows)
    middle = statistics.median(spent[-tenth:])
    text = f"catching up {AT_ONCE:,} messages at {entries:,}: at most {CATCH_UP_GOAL:g} s"
    goal(text, f"{middle:.2f} s", middle <= CATCH_UP_GOAL)


async def _searched(sessions: SessionManager, entries: int) -> None:
    print(f"\nFirst page of {PAGE}, newest first, of {entries:,} messages (ms).")
    last, first = f"session-{(entries - 1) // OF_A_SESSION}", "session-0"
    cases: list[tuple[str, list[str], dict[str, str]]] = [
        ("a word of every message", ["job"] * ROUNDS, {}),
        ("two words of every message", ["job ticket"] * ROUNDS, {}),
        ("a word of each 13th", _PLACES[:ROUNDS], {}),
        ("a word of each 1,000th", [f"rare{n}" for n in range(ROUNDS)], {}),
        ("a word of one message", [f"t{n * (entries // ROUNDS)}" for n in range(ROUNDS)], {}),
        ("a word of none", [f"nothing{n}" for n in range(ROUNDS)], {}),
        ("every message of one user", ["job"] * ROUNDS, {"user": _user(0)}),
        ("every message of the newest session", ["job"] * ROUNDS, {"session": last}),
        ("every message of the oldest session", ["job"] * ROUNDS, {"session": first}),
    ]
    rows, medians = [], dict[str, float]()
    for name, texts, which in cases:
        spent = [await _timed(sessions, text, which) for text in texts]
        medians[name] = statistics.median(seconds for seconds, _ in spent)
        longest = max(seconds for seconds, _ in spent)
        rows.append([name, str(spent[0][1]), ms(medians[name]), ms(longest)])
    table(("searched for", "hits", "median", "longest"), rows)
    for name, middle in medians.items():
        text = f"first page, {name}: at most {PAGE_GOAL * 1000:g} ms"
        goal(text, f"{ms(middle)} ms", middle <= PAGE_GOAL)


async def _timed(sessions: SessionManager, text: str, which: dict[str, str]) -> tuple[float, int]:
    start = time.perf_counter()
    found = await _page(sessions, text, which)
    return time.perf_counter() - start, found


async def _page(sessions: SessionManager, text: str, which: dict[str, str] | None = None) -> int:
    return len([hit async for hit in sessions.search(text, limit=PAGE, **(which or {}))])


def _user(number: int) -> str:
    return f"user-{number // OF_A_SESSION % USERS}"


def _message(number: int) -> Message:
    place, rare = (
        _PLACES[number % len(_PLACES)],
        f" rare{number // 1_000 % ROUNDS}" if number % 1_000 == 7 else "",
    )
    return Message.user(
        f"The {place} job loses the last line when the file has no newline at its end; ticket t{number} "
        f"names line {number % 997} of it.{rare} Find out why, fix it, and run all tests."
    )


if __name__ == "__main__":
    main()
