"""The agent of the demo: a process of its own, so that it can be killed.

It works through the jobs of the script on a real SQLite store. Before each request it makes a window and
has all five validators look at it; each line that it prints says what the store has acknowledged. Started
again, it goes on where it was. Where it is told to hang, a tool waits for an input that never comes.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import takewhile
from typing import Any

import msgspec

from .. import codec, formats, ids
from ..context import Budget
from ..context.window import Window
from ..conversation import fields
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import Session, SessionManager
from . import screen

__all__ = [
    "BUDGET",
    "LOG_JOB",
    "LOG_LINES",
    "SESSION",
    "SYSTEM",
    "Life",
    "Picture",
    "fingerprint",
    "lived",
    "main",
    "messages",
    "output",
    "source",
    "taken",
]

# What is said in the demo: a night of failing jobs, two tool calls at a time, and one enormous log.


SESSION = "nightly-jobs"
SYSTEM = "You look after the nightly jobs. Read before you write, and say what you changed."
BUDGET = Budget(17_000, output=1_000)
LOG_JOB = 6
LOG_LINES = 250_000

_JOBS = ("cleanup", "export", "billing", "search index", "backup", "mail digest", "thumbnails", "reports")


def messages(number: int) -> Iterator[Message]:
    """Return the messages of one job: a question, two calls at once, their results, an answer.

    Their ids follow from the job: windows name them, so the demo prints the same figures every time.
    """
    job = _JOBS[number % len(_JOBS)]
    path = f"jobs/{job.replace(' ', '_')}_{number}.py"
    read = ToolCallRequest(id=_call(number, 1), name="read_file", args={"path": path})
    command = {"command": f"python {path} --dry-run"}
    run = ToolCallRequest(id=_call(number, 2), name="run_command", args=command)
    printed = ToolCallResult(tool_call_id=run.id, result=output(number), is_error=number % 3 == 0)
    text = ToolCallResult(tool_call_id=read.id, result=source(path))
    asked = f"The {job} job of night {number} failed. Why, and what do we change in {path}?"
    said = (
        f"The connection of the {job} job times out at row {number * 37}: the pool in {path} is never "
        "closed. I close it in a finally block and retry three times, with a pause that doubles."
    )
    both = "I read the job and run it dry at the same time."
    yield Message.user(asked, id=_id(number, 1))
    yield Message.assistant(both, tool_calls=[read, run], id=_id(number, 2))
    yield Message.tool([printed], id=_id(number, 3))
    yield Message.tool([text], id=_id(number, 4))
    yield Message.assistant(said, id=_id(number, 5))


def _id(number: int, place: int) -> MessageId:
    return ids.derived_id(place, b"%d" % number)


def _call(number: int, place: int) -> CallId:
    return ids.derived_call_id(place, b"%d" % number)


@cache
def output(number: int) -> str:
    """Give what a dry run prints: a few rows, or the enormous log."""
    if number == LOG_JOB:
        lines = (f"02:{i // 3600:02d}:{i % 60:02d} worker {i % 7} row {i} ok" for i in range(LOG_LINES))
        return "\n".join(lines)
    return "\n".join(f"row {row}: {'timeout after 30 s' if row % 5 == 0 else 'ok'}" for row in range(12))


def source(path: str) -> str:
    """Give the text of a job's file."""
    body = "\n".join(f"    rows.extend(fetch(pool, page={page}))" for page in range(8))
    return f"# {path}\ndef job(pool):\n    rows = []\n{body}\n    return store(rows)\n"


# A picture of a conversation: all that is seen of it, as bytes, to be compared with a later one.


class Picture(msgspec.Struct, frozen=True):
    """The messages of a conversation, its state, and the request that would come next."""

    messages: tuple[bytes, ...]
    state: bytes
    request: tuple[bytes, ...]


async def taken(sessions: SessionManager) -> Picture:
    """Take a picture of the conversation as the store has it now."""
    session = await sessions.open(SESSION)
    window = await session.preview(BUDGET)
    return Picture(
        messages=tuple(map(codec.encode, await session.messages())),
        state=msgspec.json.encode(fields(await session.conversation()), order="sorted"),
        request=tuple(map(codec.encode, window.messages)),
    )


def fingerprint(message: Message) -> str:
    """Give a short text that no other message has."""
    return hashlib.sha256(codec.encode(message)).hexdigest()


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
    for message in messages(number):
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


# One life of the agent's process, shown while it goes: the bar fills, and stays where something happened.


AGENT = "turnstate.demo.agent"
EVERY = 20  # jobs between two bars that stay
MARGIN = 9

_DONE = {"cut": "the oldest turns leave", "mask": "old output hidden"}


class Life:
    """What a process found, what it said, and how it ended."""

    def __init__(self) -> None:
        self.found, self.given_up = list[str](), list[str]()
        self.saved, self.under_way = dict[str, str](), list[str]()
        self.requests = self.too_full = self.refused = self.cuts = 0
        self.job = self.ended = 0
        self.summary = ""
        self._reduced = 0

    def hear(self, event: dict[str, Any]) -> None:
        """Take in a line that the process wrote."""
        match event["event"]:
            case "ready":
                self.found, self.given_up = event["messages"], event["given_up"]
            case "saved":
                self.saved[event["id"]] = event["fingerprint"]
                self.job, self.under_way = event["job"], event["calls"]
            case "window":
                self._hear_request(event)

    def _hear_request(self, event: dict[str, Any]) -> None:
        self.requests += 1
        self.refused += len(event["refused"])
        self.too_full += event["tokens"] > event["limit"]
        self.cuts += "cut" in event["decided"]
        self._show(event)
        if event["summary"] != self.summary:
            self.summary = event["summary"]
            if event["decided"]:
                screen.note(self.summary, margin=MARGIN)

    def _show(self, event: dict[str, Any]) -> None:
        what = [_DONE[one] for one in event["decided"] if one in _DONE]
        if event["reduced"] > self._reduced and not self.found:
            what.append("a long output, by its ends")
        self._reduced = event["reduced"]
        bar = screen.bar(event["tokens"], event["limit"])
        text = f"job {event['job']:>3}  {bar}  {'; '.join(what)}".rstrip()
        stays = what or self.requests == 1 or (event["job"] % EVERY == 0 and self.requests % 2)
        if stays:
            screen.clear()
            screen.line(text)
        else:
            screen.moving(text)


def lived(
    url: str, *, until: int, kill_at: int = 0, when_ready: Callable[[Life], None] = lambda _: None
) -> Life:
    """Let the agent work up to a job; where it is to be killed in one, that is while its tools run."""
    life = Life()
    command = [sys.executable, "-m", AGENT, url, str(until), str(kill_at)]
    with subprocess.Popen(  # noqa: S603  ourselves
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us: we end it
    ) as agent:
        try:
            for event in _events(agent):
                life.hear(event)
                if event["event"] == "ready":
                    when_ready(life)
                if event["event"] == "saved" and event["job"] == kill_at and event["calls"]:
                    agent.kill()
        except BaseException:
            agent.kill()
            raise
        finally:
            screen.clear()
    life.ended = agent.returncode
    return life


def _events(agent: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    if agent.stdout is not None:
        for line in agent.stdout:
            yield msgspec.json.decode(line)
