"""A checkpoint of the demo: a file that the agent overwrote comes back together with the conversation.

The work tree is a small folder, and the snapshots are beside it: nothing of the user's is touched.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from urllib.parse import quote

from .. import formats
from ..checkpoints import CheckpointManager
from ..checkpoints.labels import START
from ..context.window import Window
from ..conversation import ConversationState
from ..errors import GitMissing
from ..home import Home
from ..log.path import message_of
from ..message import Message, ToolCallRequest, ToolCallResult
from ..session import SessionManager
from ..shadow.git import OLDEST
from ..stores.values import Address
from . import agent, screen
from .agent import BUDGET, LOG_JOB, LOG_LINES, SESSION, Life, fingerprint, lived
from .screen import Claims

__all__ = ["tell", "tell_checkpoint", "tell_compaction", "tell_ending", "tell_tangent"]

FILE = "jobs/export.py"
RUIN = "raise NotImplementedError  # shorter\n"


async def tell_checkpoint(sessions: SessionManager, claims: Claims, folder: Path) -> list[Message]:
    """Let the agent ruin a file, and go back; give what was said."""
    tree = folder / "work"
    file = tree / FILE
    file.parent.mkdir(parents=True)
    file.write_text(agent.source(FILE))
    (tree / "README.md").write_text("Jobs that run every night.\n")
    session = await sessions.open(SESSION)
    state = await session.conversation()
    try:
        checkpoints = await CheckpointManager.open(state, tree, session=session, home=Home(folder / "home"))
    except GitMissing:
        screen.line(f"  Left out: it needs git {OLDEST[0]}.{OLDEST[1]} or newer, which is not here.")
        return []
    before, files = await agent.taken(sessions), _contents(tree)
    said = await _overwrite(checkpoints, file)
    claims.make(
        f"The agent overwrote {FILE}: {len(files[FILE])} bytes are {len(RUIN)} now.",
        holds=_contents(tree) == files | {FILE: RUIN.encode()},
    )
    await checkpoints.restore(START)
    after = await agent.taken(sessions)
    claims.make(
        f"Restored: {FILE} has its {len(files[FILE])} bytes again; nothing else changed.",
        holds=_contents(tree) == files,
    )
    claims.make(
        f"The conversation went back with it: its {len(before.messages)} messages, byte for byte.",
        holds=after == before,
    )
    return said


async def _overwrite(checkpoints: CheckpointManager, file: Path) -> list[Message]:
    """Have one turn in which a file is overwritten, with the checkpoints that an agent keeps."""
    state, question = checkpoints.state, f"Make {FILE} shorter."
    start = len(state.messages)
    call = ToolCallRequest(name="write_file", args={"path": FILE, "text": RUIN})
    state.set_next_user_message(question)
    state.push_assistant_message(Message.assistant("I rewrite it.", tool_calls=[call]))
    file.write_text(RUIN)
    state.add_tool_results([ToolCallResult(tool_call_id=call.id, result=f"{len(RUIN)} bytes written")])
    await checkpoints.tool_finished(call.name, call=call.id)
    state.push_assistant_message(Message.assistant("It has one line now."))
    await checkpoints.turn_finished(question)
    return state.messages[start:]


def _contents(tree: Path) -> dict[str, bytes]:
    """Read every file of a folder."""
    return {str(one.relative_to(tree)): one.read_bytes() for one in tree.rglob("*") if one.is_file()}


# A compaction of the demo: the user asks for a summary in the place of old exchanges, and takes it back.


async def tell_compaction(sessions: SessionManager, claims: Claims) -> None:
    """Compact the conversation, and take that back."""
    before = await agent.taken(sessions)
    session = await sessions.open(SESSION)
    shown = _spoken(await session.preview(BUDGET))
    done = await session.compact(BUDGET)
    screen.line(
        f"  Compacted: {done.messages} messages make room; {done.tokens_before:,} tokens "
        f"become {done.tokens_after:,}."
    )
    screen.note(done.summary, margin=4)
    window = await (await sessions.open(SESSION)).preview(BUDGET)
    request = list(window.messages)
    refused = [name for name in formats.names() if (to := formats.get(name)).validate(to.render(request))]
    claims.make(
        f"The request has {window.tokens:,} tokens, and all five providers' rules take it.",
        holds=not refused
        and window.tokens == done.tokens_after < done.tokens_before
        and _spoken(window) == shown - done.messages,
    )
    await session.undo()
    claims.make(
        "Undone: messages, state and next request are byte for byte what they were.",
        holds=await agent.taken(sessions) == before,
    )


def _spoken(window: Window) -> int:
    """Count the messages of a request that somebody said."""
    return sum(message.kind != "summary" for message in window.messages)


# The end of the demo's story: everything that was ever acknowledged is looked for in the store.


SOUGHT = "billing pool"


async def tell_ending(
    sessions: SessionManager, claims: Claims, *, lives: list[Life], acknowledged: dict[str, str]
) -> None:
    """Compare what was acknowledged with what is there."""
    address = Address(sessions.tenant, SESSION)
    rows = await sessions.store.find(address, list(acknowledged))
    stored = {str(message.id): fingerprint(message) for row in rows if (message := message_of(row))}
    lost = sum(stored.get(id) != mark for id, mark in acknowledged.items())
    claims.make(
        f"{len(acknowledged)} messages were acknowledged, on all branches: {lost} lost or changed.",
        holds=not lost,
    )
    await _tell_of_the_log(sessions, claims)
    requests, refused, too_full = (
        sum(counts)
        for counts in zip(*((one.requests, one.refused, one.too_full) for one in lives), strict=True)
    )
    claims.make(
        f"{requests} requests: {too_full} over the budget, {refused} refused by the rules of five providers.",
        holds=not refused and not too_full,
    )
    hits = [hit async for hit in sessions.search(SOUGHT, limit=3)]
    damaged = [finding async for finding in sessions.store.verify(repair=False)]
    claims.make(
        f"Search for “{SOUGHT}”: found at entry {hits[0].seq if hits else 'none'}.",
        holds=bool(hits) and all(word in hits[0].message.text for word in SOUGHT.split()),
    )
    claims.make(f"Every entry checked against its checksum: {len(damaged)} damaged.", holds=not damaged)


async def _tell_of_the_log(sessions: SessionManager, claims: Claims) -> None:
    log = agent.output(LOG_JOB)
    session = await sessions.open(SESSION)
    kept = [result.result for message in await session.messages() for result in message.tool_results]
    claims.make(
        f"The log of job {LOG_JOB} is kept whole: {LOG_LINES:,} lines, {len(log.encode()):,} bytes.",
        holds=log in kept,
    )


# A tangent of the demo: aside from the conversation, with tools, and back to exactly where it was.


async def tell_tangent(sessions: SessionManager, claims: Claims) -> list[Message]:
    """Go aside and come back; give what was said there."""
    before = await agent.taken(sessions)
    session = await sessions.open(SESSION)
    state = await session.conversation()
    name = state.begin_tangent()
    _talk(state)
    await session.commit(state)
    said = state.messages[len(before.messages) :]
    screen.line(
        f"  Aside from message {len(before.messages)}: {len(said)} messages, two tool calls among them."
    )

    state.exit_tangent_mode()
    await session.commit(state)
    claims.make(
        "Left: messages, state and next request are byte for byte what they were.",
        holds=await agent.taken(sessions) == before,
    )

    again = await (await sessions.open(SESSION)).conversation()
    again.reopen_tangent(name)
    claims.make(
        f"The {len(said)} messages of the tangent are kept: it can be taken up again.",
        holds=again.messages[len(before.messages) :] == said,
    )
    return said


def _talk(state: ConversationState) -> None:
    """Ask two things that have nothing to do with the jobs."""
    disk = ToolCallRequest(name="run_command", args={"command": "df -h /var/backup"})
    calendar = ToolCallRequest(name="read_file", args={"path": "ops/calendar.md"})
    state.set_next_user_message("By the way: does the backup of Sunday still fit on the disk?")
    state.push_assistant_message(Message.assistant("I look at both.", tool_calls=[disk, calendar]))
    state.add_tool_results(
        [
            ToolCallResult(tool_call_id=calendar.id, result="Sunday: full backup, about 40 GB"),
            ToolCallResult(tool_call_id=disk.id, result="120G   71G   49G  60% /var/backup"),
        ]
    )
    state.push_assistant_message(Message.assistant("It does: 49 GB are free, and it takes about 40."))
    state.set_next_user_message("Good. Remind me on Saturday.")
    state.push_assistant_message(Message.assistant("I will."))


# The story of the demo: a long conversation on a real store, and all that people do to one.


FIRST_JOBS, KILLED_AT, JOBS = 100, 110, 140


def tell() -> bool:
    """Play the story and show it; tell whether all that it says is so."""
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="turnstate-demo-") as folder:
        _play(Path(folder), claims)
    return claims.conclude()


def _play(folder: Path, claims: Claims) -> None:
    url = f"sqlite:///{quote(str(folder / 'agent.db'))}"
    screen.line(f"An agent works through {JOBS} nightly jobs, two tool calls at a time, on SQLite;")
    screen.line(f"job {LOG_JOB} brings a log of {LOG_LINES:,} lines. Budget: {BUDGET.limit:,} tokens.")
    first = lived(url, until=FIRST_JOBS)
    claims.make(
        "When the budget was full, the oldest turns left; a summary stands for them.",
        holds=first.cuts > 0 and first.summary != "" and first.ended == 0,
    )
    aside = asyncio.run(_interlude(url, folder, claims))

    screen.heading(f"kill -9, while the two tools of job {KILLED_AT} run")
    killed = lived(url, until=JOBS, kill_at=KILLED_AT)
    claims.make(
        f"The process died of signal {-killed.ended}, with {len(killed.under_way)} calls under way.",
        holds=killed.ended == -signal.SIGKILL and len(killed.under_way) == 2,
    )
    before = first.saved | killed.saved
    back = lived(url, until=JOBS, when_ready=lambda life: _compare(claims, killed, life, before))
    claims.make(f"It worked on, to job {JOBS}.", holds=(back.job, back.ended) == (JOBS, 0))

    screen.heading("What is there in the end")
    lives = [first, killed, back]
    acknowledged = {id: mark for life in lives for id, mark in life.saved.items()}
    acknowledged |= {message.id: fingerprint(message) for message in aside}
    asyncio.run(_end(url, claims, lives, acknowledged))


async def _interlude(url: str, folder: Path, claims: Claims) -> list[Message]:
    """Do what people do to a conversation; give what was said meanwhile."""
    async with await SessionManager.open(url) as sessions:
        screen.heading("A tangent")
        aside = await tell_tangent(sessions, claims)
        screen.heading("A compaction on request")
        await tell_compaction(sessions, claims)
        screen.heading("A file that the agent overwrites")
        return aside + await tell_checkpoint(sessions, claims, folder)


def _compare(claims: Claims, killed: Life, back: Life, before: dict[str, str]) -> None:
    """Say what a new process found after the kill."""
    missing = before.keys() - set(back.found)
    claims.make(
        f"A new process: of {len(before)} messages acknowledged before, {len(missing)} are missing.",
        holds=not missing,
    )
    claims.make(
        f"The {len(back.given_up)} calls that were under way are answered, with a visible error.",
        holds=sorted(back.given_up) == sorted(killed.under_way),
    )


async def _end(url: str, claims: Claims, lives: list[Life], acknowledged: dict[str, str]) -> None:
    async with await SessionManager.open(url) as sessions:
        await tell_ending(sessions, claims, lives=lives, acknowledged=acknowledged)
