"""The agent of the demo: a process of its own, so that it can be killed.

It goes through a night of failing jobs, with parallel tool calls and one enormous log, on a real
SQLite store. Before each request it makes a window and has all five validators look at it; each line
that it prints says what the store has acknowledged. Started again, it goes on where it was.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import msgspec

from .. import formats
from ..context import Budget
from ..context.window import Window
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import Session, SessionManager

__all__ = ["BUDGET", "SESSION", "SYSTEM", "TURNS", "script"]

SESSION = "nightly-jobs"
SYSTEM = "You look after the nightly jobs. Read before you write, and say what you changed."
TURNS = 40
BUDGET = Budget(8_000, output=1_000)
LOG_LINES = 8_100
LOG_TURN = 5

_JOBS = ("export", "billing", "search index", "backup", "mail digest", "thumbnails", "reports", "cleanup")


def script(turn: int) -> Iterator[Message]:
    """Give the messages of one turn: a question, two calls at once, their results, an answer."""
    job = _JOBS[turn % len(_JOBS)]
    path = f"jobs/{job.replace(' ', '_')}_{turn}.py"
    read = ToolCallRequest(name="read_file", args={"path": path})
    run = ToolCallRequest(name="run_command", args={"command": f"python {path} --dry-run"})
    yield Message.user(f"The {job} job of night {turn} failed. Why, and what do we change in {path}?")
    yield Message.assistant("I read the job and run it dry at the same time.", tool_calls=[read, run])
    yield Message.tool([ToolCallResult(tool_call_id=run.id, result=_output(turn), is_error=turn % 3 == 0)])
    yield Message.tool([ToolCallResult(tool_call_id=read.id, result=_source(path))])
    yield Message.assistant(
        f"The connection of the {job} job times out at row {turn * 37}: the pool in {path} is never closed. "
        "I close it in a finally block and retry three times, with a pause that doubles."
    )


async def main(url: str) -> None:
    """Go on with the session behind a URL until the script ends."""
    async with await SessionManager.open(url) as sessions:
        session = await _session(sessions)
        done = await session.messages()
        _tell(event="ready", messages=[message.id for message in done])
        turns = sum(message.role == "user" for message in done)
        if done and done[-1].role == "tool":
            await _save(session, turns - 1, Message.assistant("I was interrupted. On with the next job."))
        for turn in range(turns, TURNS):
            await _turn(session, turn)
        _tell(event="finished", messages=[message.id for message in await session.messages()])


async def _session(sessions: SessionManager) -> Session:
    if [row async for row in sessions.all()]:
        return await sessions.restore(SESSION)
    return await sessions.create(id=SESSION, user="demo", system=SYSTEM, title="Nightly jobs")


async def _turn(session: Session, turn: int) -> None:
    for message in script(turn):
        if message.role == "assistant":
            _tell(event="window", turn=turn, **_facts(await session.window(BUDGET)))
        await _save(session, turn, message)


async def _save(session: Session, turn: int, message: Message) -> None:
    await session.append(message)
    _tell(event="saved", turn=turn, id=message.id, calls=len(message.tool_calls))


def _facts(window: Window) -> dict[str, object]:
    """Tell what a window takes, what was done for it, and whether every provider takes it."""
    summaries = [message.text for message in window.messages if message.kind == "summary"]
    refused = [
        name
        for name in formats.names()
        if (target := formats.get(name)).validate(target.render(list(window.messages)), request=True)
    ]
    return {
        "tokens": window.tokens,
        "limit": window.limit,
        "reused": window.reused_prefix_tokens,
        "shown": len(window.messages),
        "decided": [type(decision).__name__.lower() for decision in window.decisions],
        "reduced": len(window.report.reduced),
        "summary": summaries[0] if summaries else "",
        "refused": refused,
    }


def _output(turn: int) -> str:
    if turn == LOG_TURN:
        lines = (f"02:{i // 3600:02d}:{i % 60:02d} worker {i % 7} row {i} ok" for i in range(LOG_LINES))
        return "\n".join(lines)
    return "\n".join(f"row {row}: {'timeout after 30 s' if row % 5 == 0 else 'ok'}" for row in range(12))


def _source(path: str) -> str:
    body = "\n".join(f"    rows.extend(fetch(pool, page={page}))" for page in range(8))
    return f"# {path}\ndef job(pool):\n    rows = []\n{body}\n    return store(rows)\n"


def _tell(**facts: object) -> None:
    sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
