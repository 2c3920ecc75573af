"""Commands for whole sessions: list, resume, begin, save, load, export, snapshot, take over."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ... import folder_gate, ids, strict_json
from ...archive import adopt_state
from ...conversation import MAX_CONVERSATION_STATE_HISTORY_LEN, amazon_q, from_json, to_json
from ...errors import AlreadyExists, InputError
from ...ids import milliseconds
from ...log.path import Damage, WatchedLog
from ...report.html import html_page, read_page
from ...snapshots.folder import snapshot_name
from ...stores.values import Address
from ...terminal import lookup
from ...terminal.screen import table
from ...terminal.times import ago
from .usage import WrongUsage, nothing, words

if TYPE_CHECKING:
    from ..chat import Chat

SHOWN = 20


async def list_sessions(chat: Chat, rest: str) -> None:
    """List your sessions, the newest first; WORDS filter by title and id."""
    rows = list[tuple[str, str, str, str]]()
    async for one in chat.sessions.all(user=chat.user, order="active"):
        if rest.casefold() not in f"{one.title} {one.id}".casefold():
            continue
        mark = "●" if one.id == chat.session.id else " "
        rows.append((mark, one.id, ago(milliseconds(one.active)), one.title))
        if len(rows) == SHOWN:
            break
    text = table(("", "id", "active", "title"), rows) if rows else "no session matches"
    await chat.view.output(text)
    if rows and chat.view.interactive:
        await chat.view.notice("/resume ID opens one; the beginning of an id or title is enough")


async def resume(chat: Chat, rest: str) -> None:
    """Open another session: an id, a title, a unique prefix of either, or `last`.

    `last` is the session that was used last in this folder. Each session is answered by its own model, and a
    turn that was interrupted in another folder does not go on here.
    """
    if not rest:
        await list_sessions(chat, "")
        return
    if rest == lookup.LAST:
        row = await lookup.newest_in(chat.sessions, chat.workspace, home=chat.home, user=chat.user)
    else:
        row = await lookup.session(chat.sessions, rest, user=chat.user)
    if row.id == chat.session.id and not chat.looking:
        await chat.view.notice("this session is open already")
    elif await chat.enter(await chat.sessions.open(row.id, user=chat.user)):
        await chat.view.notice(f"in session {row.id}" + (f" “{row.title}”" if row.title else ""))
        await chat.resume_turn()


async def new(chat: Chat, rest: str) -> None:
    """Begin a new session; this one stays, and `/resume` opens it again."""
    nothing(rest)
    await chat.begin()
    await chat.view.notice("a new session begins")


async def save(chat: Chat, rest: str) -> None:
    """Write the conversation to a JSON file, in our format or, with --amazon-q, in that of Amazon Q.

    An existing file is replaced only with --force.
    """
    given = words(rest)
    flags, names = (
        {one for one in given if one.startswith("--")},
        [w for w in given if not w.startswith("--")],
    )
    if len(names) != 1 or not flags <= {"--amazon-q", "--force"}:
        raise WrongUsage
    state = await chat.session.conversation(last=MAX_CONVERSATION_STATE_HISTORY_LEN)
    if "--amazon-q" in flags:
        text = amazon_q.saved(state)
        for one in amazon_q.left_out(state):
            await chat.view.notice(f"not in the file: {one}")
    else:
        text = msgspec.json.format(msgspec.json.encode(to_json(state)), indent=1).decode()
    _write(chat, names[0], text, force="--force" in flags, advice="choose another name, or pass --force")
    await chat.view.notice(f"saved to {names[0]}")


async def load(chat: Chat, rest: str) -> None:
    """Open a conversation that was saved, by us or by Amazon Q, as a new session."""
    (name,) = words(rest) if len(words(rest)) == 1 else [""]
    if not name:
        raise WrongUsage
    try:
        text = folder_gate.read_bytes(chat.workspace / Path(name).expanduser())
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    document = strict_json.read(text)
    is_ours = isinstance(document, dict) and "turnstate" in document
    state = from_json(document) if is_ours else amazon_q.read(document)
    if await lookup.exact(chat.sessions, state.conversation_id) is not None:
        state.conversation_id = str(ids.message_id())
    title = Path(name).stem
    await adopt_state(chat.sessions.store, chat.sessions.tenant, state, title=title, user=chat.user)
    session = await chat.sessions.open(state.conversation_id, user=chat.user)
    await chat.enter(session, said=True)
    await chat.view.notice(f"{name} is open as session {session.id}: {len(state.history):,} exchanges")


async def export(chat: Chat, rest: str) -> None:
    """Write this session as one self-contained HTML page."""
    names = words(rest)
    if len(names) != 1:
        raise WrongUsage
    name = names[0] if names[0].endswith(".html") else f"{names[0]}.html"
    row = await chat.sessions.store.get(Address(chat.sessions.tenant, chat.session.id))
    page = await read_page(chat.sessions, row, log=WatchedLog(chat.sessions.store, Damage()))
    _write(chat, name, "".join(html_page(page)))
    await chat.view.notice(f"written to {name}")


async def snapshot(chat: Chat, rest: str) -> None:
    """Show the snapshots of this session; a chat can be resumed from them if its store is lost."""
    nothing(rest)
    if chat.snapshots is None:
        await chat.view.output("this chat writes no snapshots")
        return
    name = snapshot_name(Address(chat.sessions.tenant, chat.session.id))
    found = await asyncio.to_thread(chat.snapshots.list, name)
    if not found:
        await chat.view.output("no snapshot was written yet")
        return
    rows = [(ago(one.timestamp or 0), f"{one.token_count or 0:,}", one.state) for one in found]
    folder = found[0].path.parent.parent
    await chat.view.output(table(("snapshot", "tokens", "state"), rows, right=("tokens",)))
    await chat.view.notice(f"in {folder}; turnstate chat --resume {chat.session.id} restores the newest")


async def take_over(chat: Chat, rest: str) -> None:
    """Take the session over from the process that holds it, which is notified at its next step."""
    nothing(rest)
    await chat.enter(await chat.sessions.open(chat.session.id, user=chat.user), take_over=True)
    await chat.view.notice("the session is yours")
    await chat.resume_turn()


def _write(
    chat: Chat, name: str, text: str, *, force: bool = False, advice: str = "choose another name"
) -> None:
    path = chat.workspace / Path(name).expanduser()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
        with folder_gate.stream(path, flags, mode=0o666) as file:
            file.write(text.encode())
    except FileExistsError:
        raise AlreadyExists(f"{name} exists; {advice}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
