"""The story of the demo: a long conversation on a real store, and everything that people do to one.

The agent works until its budget is full. Then follow a tangent, a compaction on request, a file that the
agent overwrites, and a kill -9. At the end every acknowledged message is looked up in the store, and a new
session remembers what a user said in passing. Files and snapshots are in a temporary folder.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from .. import codec, formats
from ..checkpoints import CheckpointManager
from ..context.window import Window
from ..conversation import fields
from ..entry import START
from ..errors import GitMissing
from ..home import Home
from ..log.path import message_of
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import SessionManager
from ..shadow.git import OLDEST
from ..stores.values import Address
from . import agent, screen
from .agent import BUDGET, LOG_JOB, LOG_LINES, SESSION, fingerprint
from .process import AgentRun, run_agent
from .screen import Claims


class Length(NamedTuple):
    """How many jobs the agent works on: until it pauses, until it is killed, and in total."""

    first: int
    killed_at: int
    jobs: int


WHOLE, SHORT = Length(100, 110, 140), Length(60, 64, 68)
FILE = "jobs/export.py"
NEW_TEXT = "raise NotImplementedError  # shorter\n"
SEARCH = "billing pool"

USER = "mara"
SAID = "By the way, I moved to Porto in March, so call after nine."
QUESTION = "Which city do I live in?"


def play(length: Length = WHOLE) -> Claims:
    """Play the story; return its claims."""
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="turnstate-demo-") as folder:
        _play(Path(folder), claims, length)
    claims.conclude()
    return claims


def _play(folder: Path, claims: Claims, length: Length) -> None:
    url = f"sqlite:///{quote(str(folder / 'agent.db'))}"
    screen.line(f"An agent works through {length.jobs} nightly jobs, two tool calls at a time, on SQLite;")
    screen.line(f"job {LOG_JOB} brings a log of {LOG_LINES:,} lines. Budget: {BUDGET.limit:,} tokens.")
    first = run_agent(url, until=length.first)
    claims.make(
        "When the budget was full, the oldest turns left; a summary replaces them.",
        holds=first.cuts > 0 and first.summary != "" and first.exit_code == 0,
    )
    aside = asyncio.run(_user_actions(url, folder, claims))

    screen.heading(f"kill -9, while the two tools of job {length.killed_at} run")
    killed = run_agent(url, until=length.jobs, kill_at=length.killed_at)
    claims.make(
        f"The process died of signal {-killed.exit_code}, with {len(killed.open_calls)} open calls.",
        holds=killed.exit_code == -signal.SIGKILL and len(killed.open_calls) == 2,
    )
    before = first.saved | killed.saved
    resumed = run_agent(url, until=length.jobs, when_ready=lambda run: _compare(claims, killed, run, before))
    claims.make(
        f"It continued, to job {length.jobs}.",
        holds=(resumed.job, resumed.exit_code) == (length.jobs, 0),
    )

    screen.heading("The final state")
    runs = [first, killed, resumed]
    acknowledged = {id: mark for run in runs for id, mark in run.saved.items()}
    acknowledged |= {message.id: fingerprint(message) for message in aside}
    asyncio.run(_end(url, claims, runs, acknowledged))

    screen.heading("A new session that remembers")
    asyncio.run(play_memory(url, claims))


async def _user_actions(url: str, folder: Path, claims: Claims) -> list[Message]:
    """Do what people do to a conversation; return the messages of the branches that were left."""
    async with SessionManager.open(url) as sessions:
        screen.heading("A tangent")
        aside = await play_tangent(sessions, claims)
        screen.heading("A compaction on request")
        await play_compaction(sessions, claims)
        screen.heading("A file that the agent overwrites")
        return aside + await play_checkpoint(sessions, claims, folder)


def _compare(claims: Claims, killed: AgentRun, resumed: AgentRun, before: dict[str, str]) -> None:
    """Compare what a new process found with what was acknowledged before the kill."""
    missing = before.keys() - set(resumed.found)
    claims.make(
        f"A new process: of {len(before)} messages acknowledged before, {len(missing)} are missing.",
        holds=not missing,
    )
    claims.make(
        f"The {len(resumed.interrupted)} open calls are answered with a visible error.",
        holds=sorted(resumed.interrupted) == sorted(killed.open_calls),
    )


class Picture(msgspec.Struct, frozen=True):
    """Everything that can be observed of a conversation: its messages, its state, and the next request."""

    messages: tuple[bytes, ...]
    state: bytes
    request: tuple[bytes, ...]


async def _picture(sessions: SessionManager) -> Picture:
    session = await sessions.open(SESSION)
    window = await session.preview(BUDGET)
    return Picture(
        messages=tuple(map(codec.encode, await session.messages())),
        state=msgspec.json.encode(fields(await session.conversation()), order="sorted"),
        request=tuple(map(codec.encode, window.messages)),
    )


async def play_tangent(sessions: SessionManager, claims: Claims) -> list[Message]:
    """Begin a tangent with tool calls, leave it, and return its messages."""
    before = await _picture(sessions)
    session = await sessions.open(SESSION)
    name = await session.begin_tangent()
    aside = _talk()
    await session.append(*aside)
    screen.line(f"  From message {len(before.messages)}: {len(aside)} messages, two of them tool results.")

    await session.leave_tangent()
    claims.make(
        "Left: messages, state and next request are byte for byte what they were.",
        holds=await _picture(sessions) == before,
    )

    again = await sessions.open(SESSION)
    await again.reopen_tangent(name)
    claims.make(
        f"The {len(aside)} messages of the tangent are stored: it can be resumed.",
        holds=(await again.messages())[len(before.messages) :] == aside,
    )
    await again.leave_tangent()
    return aside


def _talk() -> list[Message]:
    """Return a talk about something that has nothing to do with the jobs."""
    disk = ToolCallRequest(name="run_command", args={"command": "df -h /var/backup"})
    calendar = ToolCallRequest(name="read_file", args={"path": "ops/calendar.md"})
    results = [
        ToolCallResult(tool_call_id=calendar.id, result="Sunday: full backup, about 40 GB"),
        ToolCallResult(tool_call_id=disk.id, result="120G   71G   49G  60% /var/backup"),
    ]
    return [
        Message.user("By the way: does the backup of Sunday still fit on the disk?"),
        Message.assistant("I look at both.", tool_calls=[disk, calendar]),
        Message.tool(results),
        Message.assistant("It does: 49 GB are free, and it takes about 40."),
        Message.user("Good. Remind me on Saturday."),
        Message.assistant("I will."),
    ]


async def play_compaction(sessions: SessionManager, claims: Claims) -> None:
    """Compact the conversation, then undo the compaction."""
    before = await _picture(sessions)
    session = await sessions.open(SESSION)
    shown = _without_summaries(await session.preview(BUDGET))
    done = await session.compact(BUDGET)
    screen.line(
        f"  Compacted: {done.messages} messages leave the window; {done.tokens_before:,} tokens "
        f"become {done.tokens_after:,}."
    )
    screen.note(done.summary, margin=4)
    window = await (await sessions.open(SESSION)).preview(BUDGET)
    request = list(window.messages)
    refused = [name for name in formats.names() if (to := formats.get(name)).validate(to.render(request))]
    claims.make(
        f"The request has {window.tokens:,} tokens, and is valid for all five providers.",
        holds=not refused
        and window.tokens == done.tokens_after < done.tokens_before
        and _without_summaries(window) == shown - done.messages,
    )
    await session.undo()
    claims.make(
        "Undone: messages, state and next request are byte for byte what they were.",
        holds=await _picture(sessions) == before,
    )


def _without_summaries(window: Window) -> int:
    """Return the number of messages in a request that are not summaries."""
    return sum(message.kind != "summary" for message in window.messages)


async def play_checkpoint(sessions: SessionManager, claims: Claims, folder: Path) -> list[Message]:
    """Let the agent overwrite a file, and restore the checkpoint before it; return the abandoned messages."""
    tree = folder / "work"
    file = tree / FILE
    file.parent.mkdir(parents=True)
    file.write_text(agent.source(FILE))
    (tree / "README.md").write_text("Jobs that run every night.\n")
    session = await sessions.open(SESSION)
    try:
        checkpoints = await CheckpointManager.open(session, tree, home=Home(folder / "home"))
    except GitMissing:
        screen.line(f"  Skipped: checkpoints need git {OLDEST[0]}.{OLDEST[1]} or newer, which is missing.")
        return []
    before, files = await _picture(sessions), _contents(tree)
    abandoned = await _overwrite(checkpoints, file)
    claims.make(
        f"The agent overwrote {FILE}: {len(files[FILE])} bytes became {len(NEW_TEXT)}.",
        holds=_contents(tree) == files | {FILE: NEW_TEXT.encode()},
    )
    await checkpoints.restore(START)
    after = await _picture(sessions)
    claims.make(
        f"Restored: {FILE} has its {len(files[FILE])} bytes again; nothing else changed.",
        holds=_contents(tree) == files,
    )
    claims.make(
        f"The conversation was restored with it: its {len(before.messages)} messages, byte for byte.",
        holds=after == before,
    )
    return abandoned


async def _overwrite(checkpoints: CheckpointManager, file: Path) -> list[Message]:
    """Run one turn that overwrites a file, with the checkpoints that an agent takes."""
    session, question = checkpoints.session, f"Make {FILE} shorter."
    call = ToolCallRequest(name="write_file", args={"path": FILE, "text": NEW_TEXT})
    said = [Message.user(question), Message.assistant("I rewrite it.", tool_calls=[call])]
    await session.append(*said)
    file.write_text(NEW_TEXT)
    written = Message.tool([ToolCallResult(tool_call_id=call.id, result=f"{len(NEW_TEXT)} bytes written")])
    await session.append(written)
    await checkpoints.tool_finished(call.name, call=call.id)
    done = Message.assistant("It has one line now.")
    await session.append(done)
    await checkpoints.turn_finished(question)
    return [*said, written, done]


def _contents(tree: Path) -> dict[str, bytes]:
    return {str(one.relative_to(tree)): one.read_bytes() for one in tree.rglob("*") if one.is_file()}


async def _end(url: str, claims: Claims, runs: list[AgentRun], acknowledged: dict[str, str]) -> None:
    """Compare everything that was acknowledged with the content of the store."""
    async with SessionManager.open(url) as sessions:
        rows = await sessions.store.find(Address(sessions.tenant, SESSION), list(acknowledged))
        stored = {str(message.id): fingerprint(message) for row in rows if (message := message_of(row))}
        lost = sum(stored.get(id) != mark for id, mark in acknowledged.items())
        claims.make(
            f"{len(acknowledged)} messages were acknowledged, on all branches: {lost} lost or changed.",
            holds=not lost,
        )
        log = agent.output(LOG_JOB)
        messages = await (await sessions.open(SESSION)).messages()
        claims.make(
            f"The log of job {LOG_JOB} is complete: {LOG_LINES:,} lines, {len(log.encode()):,} bytes.",
            holds=any(log == result.result for message in messages for result in message.tool_results),
        )
        requests, refused, too_full = (
            sum(getattr(run, name) for run in runs) for name in ("requests", "refused", "too_full")
        )
        claims.make(
            f"{requests} requests: {too_full} over the budget, {refused} invalid for one of five providers.",
            holds=not refused and not too_full,
        )
        hits = [hit async for hit in sessions.search(SEARCH, limit=3)]
        claims.make(
            f"Search for “{SEARCH}”: found at entry {hits[0].seq if hits else 'none'}.",
            holds=bool(hits) and all(word in hits[0].message.text for word in SEARCH.split()),
        )
        damaged = [finding async for finding in sessions.store.verify(repair=False)]
        claims.make(
            f"Every entry matches its checksum: {len(damaged)} damaged.",
            holds=not damaged,
        )


async def play_memory(url: str, claims: Claims) -> None:
    """Say something in passing, end the session, and ask for it in a new one."""
    async with SessionManager.open(url, memory="builtin") as sessions:
        session = await sessions.create(user=USER)
        await session.append(Message.user(SAID), Message.assistant("After nine it is."))
        await session.end()
        await sessions.deliver()
        screen.line(f"  Said in passing: “{SAID}”")
        later = await sessions.create(user=USER)
        await later.append(Message.user(QUESTION))
        request = await later.preview(BUDGET)
        claims.make(
            "A new session of the same user begins with what is known: Porto.",
            holds=any(message.kind == "bootstrap" and SAID in message.text for message in request.messages),
        )
        hits = await later.recall(QUESTION, 1)
        claims.make(
            f"“{QUESTION}” finds the message of the session before.",
            holds=[(hit.session, hit.text) for hit in hits] == [(session.id, SAID)],
        )
        erased = await sessions.erase(user=USER)
        stranger = await sessions.create(user=USER)
        await stranger.append(Message.user(QUESTION))
        claims.make(
            f"Erased on request: {erased.memories} messages left the memory, and nothing is found.",
            holds=erased.memories == 2 and not await stranger.recall(QUESTION, 1),
        )
