"""The agent of the demo: a process of its own, so that it can be killed.

It works through the jobs of the script on a real SQLite store. Before each request it makes a window and
has all five validators look at it; each line that it prints says what the store has acknowledged. Started
again, it goes on where it was. Where it is told to hang, a tool waits for an input that never comes.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import takewhile

import msgspec

from .. import formats
from ..context.window import Window
from ..message import Message
from ..session import Session, SessionManager
from . import demo_script
from .demo_picture import fingerprint
from .demo_script import BUDGET, SESSION, SYSTEM

__all__ = ["main"]


async def main(url: str, *, until: int, hang_at: int) -> None:
    """Go on with the session behind a URL, up to a job; hang in the tools of another, unless that is 0."""
    async with await SessionManager.open(url) as sessions:
        session = await _session(sessions)
        said = await session.messages()
        _tell(event="ready", messages=[message.id for message in said], given_up=_given_up(said))
        jobs = sum(message.role == "user" for message in said)
        if said and said[-1].role == "tool":
            await _save(session, jobs, Message.assistant("I was interrupted. On with the next job."))
        for number in range(jobs + 1, until + 1):
            await _work(session, number, hang=number == hang_at)


async def _session(sessions: SessionManager) -> Session:
    if [row async for row in sessions.all()]:
        return await sessions.restore(SESSION)
    return await sessions.create(id=SESSION, user="demo", system=SYSTEM, title="Nightly jobs")


async def _work(session: Session, number: int, *, hang: bool) -> None:
    for message in demo_script.messages(number):
        if message.role == "assistant":
            _tell(event="window", job=number, **_facts(await session.window(BUDGET)))
        await _save(session, number, message)
        if hang and message.tool_calls:
            await asyncio.to_thread(sys.stdin.read)
            sys.exit("whoever listened is gone")


async def _save(session: Session, number: int, message: Message) -> None:
    await session.append(message)
    calls = [call.id for call in message.tool_calls]
    _tell(event="saved", job=number, id=message.id, fingerprint=fingerprint(message), calls=calls)


def _given_up(said: list[Message]) -> list[str]:
    """Return the calls at the end that were answered with an error when the session was taken up again."""
    answers = takewhile(lambda message: message.role == "tool", reversed(said))
    return [one.tool_call_id for message in answers for one in message.tool_results if one.is_error]


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
        "decided": [type(decision).__name__.lower() for decision in window.decisions],
        "reduced": len(window.report.reduced),
        "summary": summaries[0] if summaries else "",
        "refused": refused,
    }


def _tell(**facts: object) -> None:
    sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _url, _until, _hang_at = sys.argv[1:]
    asyncio.run(main(_url, until=int(_until), hang_at=int(_hang_at)))
