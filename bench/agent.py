"""A round of the agent with one call, compared with the same rows written raw, at 10,000 messages.

A round is a request, the reply with a call, the mark that a non-idempotent tool was started, and its result:
three commits, and the window between them. The model and the tool return immediately, so only the loop itself
is measured. The raw side writes exactly the entries that the round wrote, in the same three transactions, to
a store of the same length, in a loop without checks, threads or an event loop; it encodes and counts them on
the way. Neither side writes words for search, since an append does not write them. Both take turns on one
disk. On a busy machine a median measures the other work, so the fastest tenth of the rounds is compared.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnstate import Budget, Message, SessionManager, ToolCallRequest
from turnstate.agent import Agent, Limits, RequestStarted, ToolManager, tool
from turnstate.entry import Entry, Started, Usage
from turnstate.models import Finished, ModelEvent, ModelRequest, ToolCallMade, UsageReported
from turnstate.session import Session
from turnstate.stores.values import Record
from turnstate.testing import ScriptedModel
from turnstate.tools import Approvals, Rule

from .session_messages import agent as messages
from .session_raw import Bare, Made, recorder
from .window_print import goal, ms, table, times

LENGTH = 10_000
ROUNDS = 20
TURNS = 15
BUDGET = Budget(32_000, output=2_000)
FACTOR, ALLOWANCE = 1.5, 0.001


@tool
async def note(number: int) -> str:
    """Write something down."""
    return f"noted {number}"


def reply(request: ModelRequest) -> list[ModelEvent]:
    """Return a reply with one call, and the usage that a provider would report."""
    call = ToolCallRequest(name="note", args={"number": len(request.messages)})
    usage = UsageReported(input=20_000, output=30, cached=15_000)
    return [ToolCallMade(call), usage, Finished("tool_calls")]


async def rounds(session: Session) -> list[float]:
    """Run a turn of `ROUNDS` rounds; return the time of each."""
    model = ScriptedModel(*[reply] * (ROUNDS + 1))
    tools = ToolManager([note], approvals=Approvals([Rule("note", "allow")]))
    limits = Limits(rounds=ROUNDS + 1, repeats=ROUNDS + 2)
    agent = Agent(model=model, session=session, tools=tools, budget=BUDGET, limits=limits)
    starts = list[float]()
    async for event in agent.run("Take notes."):
        if isinstance(event, RequestStarted):
            starts.append(time.perf_counter())
    return [after - before for before, after in pairwise(starts)]


async def written(session: Session, after: str) -> list[list[Entry]]:
    """Return what was written after an entry, by transaction: reply and usage, the mark, the result."""
    groups = list[list[Entry]]()
    for one in await session.entries(after=after):
        if isinstance(one.entry, Usage):
            groups[-1].append(one.entry)
        elif isinstance(one.entry, Message | Started):
            groups.append([one.entry])
    return groups


def made() -> Callable[[Any], Made]:
    """Return a function that makes a record of an entry, without its words."""
    record: Callable[[Any], Record] = recorder()
    return lambda entry: (record(entry), None)


def raw(bare: Bare, groups: Sequence[Sequence[Entry]]) -> list[float]:
    """Write transactions raw; return the time of each round, which is three of them."""
    record = made()
    spent = [sum(bare.write([("raw", one) for one in group], record, at_once=len(group))) for group in groups]
    return [sum(spent[at : at + 3]) for at in range(0, len(spent) - 2, 3)]


async def measured(folder: Path, bare: Bare) -> tuple[list[float], list[float]]:
    """Return the times of rounds, and of the same entries written raw."""
    said = messages(LENGTH)
    bare.write([("raw", message) for message in said], made(), at_once=1_000)
    ours, theirs = list[float](), list[float]()
    async with SessionManager.open(f"sqlite:///{folder}/agent.db") as sessions:
        session = await sessions.create(user="u")
        for at in range(0, LENGTH, 1_000):
            await session.append(*said[at : at + 1_000])
        await session.window(BUDGET)
        for _ in range(TURNS):
            ready = await session.append(Message.assistant("Ready."))
            (last,) = ready.ids.values()
            ours += await rounds(session)
            theirs += raw(bare, (await written(session, last))[1:])  # without the user's message
    return ours, theirs


def main() -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        bare = Bare(Path(folder), "raw.db", ["raw"])
        ours, theirs = asyncio.run(measured(Path(folder), bare))
        bare.close()
    mine, floor = (statistics.quantiles(spent, n=10)[0] for spent in (ours, theirs))
    rows = [
        ["a round of the agent", ms(mine), times(mine / floor)],
        ["its entries written raw", ms(floor), times(1.0)],
    ]
    table(["at 10,000 messages, one call", "ms", "ratio"], rows)
    allowed = FACTOR * floor + ALLOWANCE
    goal("overhead of a round", f"{ms(mine)} ms where {ms(allowed)} ms are allowed", mine <= allowed)


if __name__ == "__main__":
    main()
