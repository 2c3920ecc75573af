"""What is done to a conversation: tangents, clear, undo, the model, lines of files, at two lengths.

Both sessions end alike, since the short one is the newest part of the long one's history, and both have the
cut of a window. A round does everything once in each session; sessions take turns. Afterwards the same is
done some more times while the rows are counted that the store returns: a longer log must not cost one more.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from turnstate import Budget, Message, Session, SessionManager
from turnstate.entry import Entry, Usage
from turnstate.session.append import write

from . import conversation_today as api
from .conversation_reads import Counted, counted_reads
from .session_messages import agent
from .window_print import goal, ms, table, times

LENGTHS = (100, 100_000)
ROUNDS, COUNTED = 200, 5
BUDGET = Budget(4_000)
"""Small enough that even the shorter session has to be cut."""

GOAL = 1.5
MODELS = ("gpt-5", "gpt-5-mini")
EXCHANGES = 2
AT_ONCE = 1_000
USAGE = Usage(input=12_000, output=300, cached=10_000)
WORDS = "The ferry is late, and the lamp at the end of the pier is out again. " * 4

Step = Callable[[], Awaitable[Any]]
Around = Callable[[str, Step], Awaitable[None]]
"""Runs a step of a named operation, and measures it."""


async def report(name: str, url: str) -> None:
    """Measure on a store, and print the tables."""
    async with SessionManager.open(url) as sessions:
        said = agent(max(LENGTHS))
        open = dict[int, Session]()
        for length in LENGTHS:
            open[length] = await sessions.create(id=f"operations-{length}", user="u")
            await talked(sessions, open[length], said[-length:])
            await open[length].window(BUDGET)
        spent = await _timed(open)
        counted = await _counted(sessions, open)
    _print(name, spent, counted)


async def talked(sessions: SessionManager, session: Session, messages: Sequence[Message]) -> None:
    """Add many messages, each reply with its usage, as turns do; then index them, which is not measured."""
    for start in range(0, len(messages), AT_ONCE):
        entries = list[Entry]()
        for message in messages[start : start + AT_ONCE]:
            entries += [message, USAGE] if message.role == "assistant" else [message]
        await write(session._writer, entries)
    async for _ in sessions.search("nothing"):
        pass


async def _timed(open: dict[int, Session]) -> dict[str, dict[int, float]]:
    """Return the median time of each operation by length."""
    spent: dict[str, dict[int, list[float]]] = defaultdict(lambda: {length: [] for length in LENGTHS})
    for number in range(ROUNDS):
        for length in LENGTHS[:: -1 if number % 2 else 1]:
            found = dict[str, float]()

            async def timing(operation: str, step: Step, found: dict[str, float] = found) -> None:
                start = time.perf_counter()
                await step()
                found[operation] = found.get(operation, 0.0) + time.perf_counter() - start

            await _round(open[length], number, timing)
            for operation, seconds in found.items():
                spent[operation][length].append(seconds)
    return {
        operation: {length: statistics.median(one) for length, one in by_length.items()}
        for operation, by_length in spent.items()
    }


async def _counted(sessions: SessionManager, open: dict[int, Session]) -> dict[str, dict[int, Counted]]:
    """Return the median of what each operation reads, by length."""
    read: dict[str, dict[int, list[Counted]]] = defaultdict(lambda: {length: [] for length in LENGTHS})
    for number in range(COUNTED):
        for length in LENGTHS:
            found = defaultdict[str, Counted](Counted)

            async def counting(operation: str, step: Step, found: dict[str, Counted] = found) -> None:
                with counted_reads(sessions.store) as counted:
                    await step()
                one = found[operation]
                one.calls, one.rows = one.calls + counted.calls, one.rows + counted.rows
                one.bytes += counted.bytes

            await _round(open[length], ROUNDS + number, counting)
            for operation, one in found.items():
                read[operation][length].append(one)
    return {
        operation: {length: _median(one) for length, one in by_length.items()}
        for operation, by_length in read.items()
    }


def _median(found: list[Counted]) -> Counted:
    return Counted(
        *(statistics.median_low(getattr(one, name) for one in found) for name in ("calls", "rows", "bytes"))
    )


async def _round(session: Session, number: int, around: Around) -> None:
    """Do everything once; what is said in a tangent is not measured."""
    for bring in (None, "tail", "summary"):
        operation = f"tangent, {bring or 'nothing'} brought back"
        await around(operation, lambda: api.begin_tangent(session))
        await session.append(*_exchanges(number))
        await around(operation, lambda bring=bring: api.leave_tangent(session, bring))  # type: ignore[misc]
    await around("clear", lambda: api.clear(session))
    await around("undo", session.undo)
    await around("set model", lambda: session.set_model(MODELS[number % 2]))
    await around("record lines", lambda: api.record_lines(session, "pier.txt", number))


def _exchanges(number: int) -> list[Message]:
    asked = (f"{number}.{one}: is it out?" for one in range(EXCHANGES))
    return [said for words in asked for said in (Message.user(words), Message.assistant(WORDS))]


def _print(name: str, spent: dict[str, dict[int, float]], counted: dict[str, dict[int, Counted]]) -> None:
    short, long = LENGTHS
    print(f"\n{name}: medians of {ROUNDS}, in ms; what the store returns for one, rows and kB")
    rows = []
    for operation, by_length in spent.items():
        few, many = counted[operation][short], counted[operation][long]
        rows.append(
            [
                operation,
                ms(by_length[short]),
                ms(by_length[long]),
                times(by_length[long] / by_length[short]),
                *(f"{one.rows:,}" for one in (few, many)),
                *(f"{one.bytes / 1000:,.1f}" for one in (few, many)),
            ]
        )
    head = ["", f"{short:,} messages", f"{long:,}", "ratio", f"rows, {short:,}", f"{long:,}"]
    table([*head, f"kB, {short:,}", f"{long:,}"], rows)
    for operation, by_length in spent.items():
        ratio = by_length[long] / by_length[short]
        text = f"{name}, {operation}: {long:,} messages at most {GOAL:g} × {short:,}"
        goal(text, times(ratio), ratio <= GOAL)
    more = [one for one, by_length in counted.items() if _is_more(by_length[long], by_length[short])]
    text = f"{name}: no operation reads more rows or bytes of {long:,} messages than of {short:,}"
    goal(text, ", ".join(more) or "none does", not more)


def _is_more(one: Counted, other: Counted) -> bool:
    """Return True if more was read; the bytes of as many rows vary a little with what was said last."""
    return one.rows > other.rows or one.bytes > 1.05 * other.bytes
