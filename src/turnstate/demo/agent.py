"""The demo's agent: it runs in its own process, so that it can be killed.

It works through nightly jobs on a real SQLite store: a question, two parallel tool calls, their results, an
answer; one job returns an enormous log. Before each request it builds a window and runs all five validators
on it. Each line that it prints is an event in JSON; an append is printed after the store has acknowledged it.
When it is started again, it continues where it stopped. At the job ``hang_at`` its tools block forever.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile

import msgspec

from .. import codec, formats, ids
from ..context import Budget
from ..context.window import Window
from ..entry import Mask
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import Session, SessionManager

SESSION = "nightly-jobs"
SYSTEM = "You look after the nightly jobs. Read before you write, and say what you changed."
BUDGET = Budget(17_000, output=1_000)
LOG_JOB = 6
LOG_LINES = 250_000

_JOBS = ("cleanup", "export", "billing", "search index", "backup", "mail digest", "thumbnails", "reports")


def messages(number: int) -> Iterator[Message]:
    """Yield the messages of one job: a question, two parallel calls, their results, an answer.

    Windows contain the ids, so they are derived from the job: the demo prints the same numbers every time.
    """
    job = _JOBS[number % len(_JOBS)]
    path = f"jobs/{job.replace(' ', '_')}_{number}.py"
    read = ToolCallRequest(id=_call_id(number, 1), name="read_file", args={"path": path})
    command = {"command": f"python {path} --dry-run"}
    run = ToolCallRequest(id=_call_id(number, 2), name="run_command", args=command)
    printed = ToolCallResult(tool_call_id=run.id, result=output(number), is_error=number % 3 == 0)
    text = ToolCallResult(tool_call_id=read.id, result=source(path))
    question = f"The {job} job of night {number} failed. Why, and what do we change in {path}?"
    answer = (
        f"The connection of the {job} job times out at row {number * 37}: the pool in {path} is never "
        "closed. I close it in a finally block and retry three times, with a pause that doubles."
    )
    both = "I read the job and run it dry at the same time."
    yield Message.user(question, id=_message_id(number, 1))
    yield Message.assistant(both, tool_calls=[read, run], id=_message_id(number, 2))
    yield Message.tool([printed], id=_message_id(number, 3))
    yield Message.tool([text], id=_message_id(number, 4))
    yield Message.assistant(answer, id=_message_id(number, 5))


@cache
def output(number: int) -> str:
    """Return what a dry run prints: a few rows, or the enormous log."""
    if number == LOG_JOB:
        lines = (f"02:{i // 3600:02d}:{i % 60:02d} worker {i % 7} row {i} ok" for i in range(LOG_LINES))
        return "\n".join(lines)
    return "\n".join(f"row {row}: {'timeout after 30 s' if row % 5 == 0 else 'ok'}" for row in range(12))


def source(path: str) -> str:
    """Return the text of a job's file."""
    body = "\n".join(f"    rows.extend(fetch(pool, page={page}))" for page in range(8))
    return f"# {path}\ndef job(pool):\n    rows = []\n{body}\n    return store(rows)\n"


def fingerprint(message: Message) -> str:
    """Return a hash of everything that a message contains."""
    return hashlib.sha256(codec.encode(message)).hexdigest()


def _message_id(number: int, place: int) -> MessageId:
    return ids.seeded_id(place, b"%d" % number)


def _call_id(number: int, place: int) -> CallId:
    return ids.seeded_call_id(place, b"%d" % number)


async def main(url: str, *, until: int, hang_at: int) -> None:
    """Continue the session in a store up to a job; hang in the tools of job `hang_at`, if it is not 0."""
    async with SessionManager.open(url) as sessions:
        session = await _session(sessions)
        found = await session.messages()
        _emit(event="ready", messages=[message.id for message in found], interrupted=_interrupted(found))
        jobs = sum(message.role == "user" for message in found)
        if found and found[-1].role == "tool":
            await _save(session, jobs, Message.assistant("I was interrupted. On with the next job."))
        for number in range(jobs + 1, until + 1):
            await _work(session, number, hang=number == hang_at)


async def _session(sessions: SessionManager) -> Session:
    if [row async for row in sessions.all()]:
        return await sessions.restore(SESSION)
    return await sessions.create(id=SESSION, user="demo", system=SYSTEM, title="Nightly jobs")


async def _work(session: Session, number: int, *, hang: bool) -> None:
    for message in messages(number):
        if message.role == "assistant":
            _emit(event="window", job=number, **_facts(await session.window(BUDGET)))
        await _save(session, number, message)
        if hang and message.tool_calls:
            await asyncio.to_thread(sys.stdin.read)
            sys.exit("the parent process is gone")


async def _save(session: Session, number: int, message: Message) -> None:
    await session.append(message)
    calls = [call.id for call in message.tool_calls]
    _emit(event="saved", job=number, id=message.id, fingerprint=fingerprint(message), calls=calls)


def _interrupted(found: list[Message]) -> list[str]:
    """Return the calls at the end that were answered with an error when the session was restored."""
    answers = takewhile(lambda message: message.role == "tool", reversed(found))
    return [one.tool_call_id for message in answers for one in message.tool_results if one.is_error]


def _facts(window: Window) -> dict[str, object]:
    """Return the size of a window, the decisions made for it, and the providers that would reject it."""
    summaries = [message.text for message in window.messages if message.kind == "summary"]
    refused = [
        name
        for name in formats.names()
        if (target := formats.get(name)).validate(target.render(list(window.messages)), request=True)
    ]
    return {
        "tokens": window.tokens,
        "limit": window.limit,
        "decisions": [
            type(decision).__name__.lower()
            for decision in window.decisions
            if not isinstance(decision, Mask) or decision.ids
        ],
        "reduced": len(window.report.reduced),
        "summary": summaries[0] if summaries else "",
        "refused": refused,
    }


def _emit(**facts: object) -> None:
    sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _url, _until, _hang_at = sys.argv[1:]
    asyncio.run(main(_url, until=int(_until), hang_at=int(_hang_at)))
