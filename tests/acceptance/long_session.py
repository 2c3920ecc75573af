"""A long session with everything in it: 3 tangents, 2 compactions, 1 restore, 10,000 messages on its path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.checkpoints import CheckpointManager
from turnstate.session import Session

LIMIT = 16_000
ID = "long"
CHUNK = 250  # turns of one write


def turn(number: int) -> Iterator[Message]:
    """Yield one turn of four messages: a question, a call, its result, the answer."""
    call = ToolCallRequest(name="read_file", args={"path": f"src/module_{number}.py"})
    yield Message.user(f"Question {number}: what does module {number} do?")
    yield Message.assistant(None, tool_calls=[call])
    output = "\n".join(f"{line} def function_{number}_{line}(): ..." for line in range(3 + number % 9))
    yield Message.tool([ToolCallResult(tool_call_id=call.id, result=output)])
    yield Message.assistant(f"Module {number} defines a few functions.")


async def make_long(url: str, folder: Path, turns: int = 2_500) -> None:
    """Keep the session, with that many turns on the path to its head."""
    async with await SessionManager.open(url) as sessions:
        session = await sessions.create(id=ID, title="The long one", user="anna", system="You help.")
        part = turns // 5
        await _append(session, 0, part)
        await session.window(Budget(LIMIT))
        await _tangent(session, "What is a module, by the way?")
        checkpoints = await CheckpointManager.open(session, folder)
        kept = await checkpoints.keep("before the rewrite")
        await _append(session, 90_000, 90_003)
        checkpoints = await CheckpointManager.reopen(session, folder)
        await checkpoints.restore(kept.label)
        await _append(session, part, 2 * part)
        await session.window(Budget(LIMIT))
        await session.compact(Budget(LIMIT))
        await _append(session, 2 * part, 3 * part)
        await _tangent(session, "Who wrote module 7?")
        await session.window(Budget(LIMIT))
        await _append(session, 3 * part, 4 * part)
        await session.compact(Budget(LIMIT))
        await _tangent(session, "And what is a function?")
        await _append(session, 4 * part, turns)
        await session.window(Budget(LIMIT))


async def _append(session: Session, first: int, end: int) -> None:
    for start in range(first, end, CHUNK):
        numbers = range(start, min(end, start + CHUNK))
        await session.append(*(message for number in numbers for message in turn(number)))


async def _tangent(session: Session, question: str) -> None:
    await session.begin_tangent()
    await session.append(Message.user(question), Message.assistant("That is beside the point."))
    await session.leave_tangent()
