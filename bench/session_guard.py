"""What the second locks of an SQLite file cost: appends and reads with them and without, in turns.

A machine that does something else is slower for a while, so both are measured in short turns, one right after
the other, and the medians are compared. Without the locks, a process that opens and closes the files of its
own store loses messages (`turnstate.open_databases`). `python -m bench.session_guard` measures only this.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from turnstate import Message, open_databases
from turnstate.session import Session, SessionManager

from .window_print import goal, table, times

TURNS = 60
LONE, CLIENTS, ROUNDS, READS = 150, 64, 8, 300
"""Lone appends, clients with their appends, and reads in a turn."""

WARM = 20
"""Appends before the first turn, after which commits and reads run in the loop's thread."""

GOAL = 1.05
"""The most that an append may take with the locks, divided by the time without."""

TEXT = "The quick brown fox jumps over the lazy dog. " * 4


def report(folder: Path, *, turns: int = TURNS) -> None:
    """Measure and print."""
    spent: dict[str, dict[bool, list[float]]] = {}
    for turn in range(turns):
        for guarded in (True, False) if turn % 2 else (False, True):
            for name, seconds in asyncio.run(_turn(folder, guarded=guarded)).items():
                spent.setdefault(name, {True: [], False: []})[guarded].append(seconds)
    ratios = {name: median(both[True]) / median(both[False]) for name, both in spent.items()}
    print("\nLocks that survive a close elsewhere (µs).")
    table(
        ["", "with", "without", "with / without"],
        [
            [name, f"{median(both[True]) * 1e6:.1f}", f"{median(both[False]) * 1e6:.1f}", times(ratios[name])]
            for name, both in spent.items()
        ],
    )
    appends = max(ratio for name, ratio in ratios.items() if "append" in name)
    goal(f"an append takes at most {GOAL:.2f} times as long with them", times(appends), appends <= GOAL)


async def _turn(folder: Path, *, guarded: bool) -> dict[str, float]:
    """Return the seconds of each operation on a new file."""
    command = open_databases._SET
    open_databases._SET = command if guarded else None
    try:
        async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
            session = await sessions.create()
            await _append(session, WARM)
            found = {"a lone append": await _append(session, LONE)}
            many = [await sessions.create() for _ in range(CLIENTS)]
            start = time.perf_counter()
            await asyncio.gather(*(_append(one, ROUNDS) for one in many))
            found[f"an append of {CLIENTS} clients"] = (time.perf_counter() - start) / (CLIENTS * ROUNDS)
            start = time.perf_counter()
            for _ in range(READS):
                await sessions.store.get(session._row.address)
            found["reading the row of a session"] = (time.perf_counter() - start) / READS
        (folder / "agent.db").unlink()
        return found
    finally:
        open_databases._SET = command


async def _append(session: Session, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        await session.append(Message.user(TEXT))
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    with TemporaryDirectory(prefix="turnstate-bench-") as place:
        report(Path(place))
