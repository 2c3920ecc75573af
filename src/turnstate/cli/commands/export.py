"""``turnstate export``: write sessions as an archive, as Markdown, or in a provider's format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import Any

import click

from ...archive import (
    ArchivedBranch,
    ArchivedEntry,
    ArchivedSession,
    ArchiveEnd,
    ArchiveLine,
    Header,
    archive,
    conversation,
    encode_line,
    is_incomplete,
)
from ...context.turns import elsewhere
from ...context.window import Window
from ...errors import NotFound, StoreDamaged, TurnstateError
from ...formats import rendered
from ...formats.exports import markdown
from ...formats.port import Format
from ...log.path import Damage, WatchedLog
from ...report.html import html_page, read_page
from ...session import SessionManager
from ...session.named_values import owner_states
from ...session.names import OWNERS
from ...stores.port import FindsSessions, Store
from ...stores.values import Address, SessionFilter, SessionRow
from ...terminal import lookup, screen
from ...terminal.screen import Step, metered
from .. import destination, documents
from ..completion import session_names
from ..options import named_format, output_options, quiet_option
from ..store import EXIT_CODES, managed, tenant_option, user_option

ARCHIVE = ("archive", "jsonl")
MARKDOWN = "markdown"
HTML = "html"

WHOLE = 1_000
"""Steps of the progress meter per session, so that progress within a long session is visible."""

STEP = 500
"""Entries between two updates of the progress meter."""


def _target(_ctx: click.Context, _option: click.Parameter, name: str) -> Format | str:
    own = (*ARCHIVE, MARKDOWN, HTML)
    return name if name in own else named_format(name, *own)


@click.command("export", epilog=EXIT_CODES)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=session_names)
@click.option("--all", "everything", is_flag=True, help="Export all sessions, oldest first.")
@tenant_option
@user_option
@click.option(
    "--format",
    "target",
    metavar="NAME",
    default=ARCHIVE[0],
    show_default=True,
    callback=_target,
    help="archive, markdown, html, or a provider format.",
)
@output_options
@quiet_option
def command(
    ids: tuple[str, ...],
    everything: bool,
    store: str,
    tenant: str,
    user: str | None,
    target: Format | str,
    output: str | None,
    force: bool,
    quiet: bool,
) -> int:
    """Write sessions to a file: as a backup, for another store, for a provider or for reading.

    An archive (JSON Lines) contains everything: messages, branches, epochs and decisions, with
    their ids and times; `turnstate import` restores it into any store. A provider's format and
    markdown contain the complete conversation at the head: a document for one ID, JSON Lines for
    several or --all. html is one self-contained page: the conversation with its turns
    folded, branches, cuts with their summaries, a plot of tokens per request, and search. For a
    provider, calls without a result are answered, so that it accepts the conversation. For the
    Amazon Q command line, use `turnstate amazon-q export`.

    With --all, a session that cannot be read is named and left out, and the exit code is 1.

    \b
    Example:
      turnstate export --all -o backup.jsonl
      turnstate export 0197a1 --format markdown
      turnstate export last --format html -o conversation.html
      turnstate export 0197a1 --format anthropic -o conversation.json

    \b
    Formats:
      archive  markdown  html
      openai-chat  openai-responses  anthropic  bedrock  gemini
    """
    if (ids and everything) or not (ids or everything or lookup.can_pick()):
        raise click.UsageError("pass session IDs, or --all")
    return asyncio.run(
        _export(ids, store, tenant, user, target, output, everything=everything, force=force, quiet=quiet)
    )


async def _export(
    ids: Sequence[str],
    store: str,
    tenant: str,
    user: str | None,
    target: Format | str,
    output: str | None,
    *,
    everything: bool,
    force: bool,
    quiet: bool,
) -> int:
    async with managed(store, tenant, to_read=True) as sessions:
        if not ids and not everything:
            ids = [(await lookup.chosen(sessions, None, user=user)).id]
        chosen = await (_everything(sessions, user, target) if everything else _named(sessions, ids, user))
        left_out = _LeftOut(allowed=everything)
        with ExitStack() as files:
            write = files.enter_context(destination.opened(output, force=force))
            step = files.enter_context(metered("sessions", len(chosen) * WHOLE))
            if isinstance(target, str) and target in ARCHIVE:
                return await _archive(sessions, chosen, left_out, write, step)
            if target == HTML:
                return await _page(sessions, chosen, left_out, write)
            one = len(chosen) == 1 and bool(ids)
            return await _render(sessions, chosen, left_out, target, write, step, one=one, quiet=quiet)


async def _named(sessions: SessionManager, ids: Sequence[str], user: str | None) -> list[Address]:
    rows = [await lookup.session(sessions, id, user=user) for id in ids]
    return list(dict.fromkeys(row.address for row in rows))


async def _everything(sessions: SessionManager, user: str | None, target: Format | str) -> list[Address]:
    """Return all sessions, oldest first, and in an archive the states of the tenant and its users."""
    store, with_states = sessions.store, target in ARCHIVE
    tenants = [sessions.tenant, *([OWNERS + sessions.tenant] if with_states else [])]
    if isinstance(store, FindsSessions):  # not by its lists: nothing mends them, and export is the way out
        return await _found(store, store.addresses(), tenants, user)
    chosen = [row.address async for row in lookup.walk(sessions, SessionFilter(user=user))][::-1]
    return chosen + (await owner_states(store, sessions.tenant, user) if with_states else [])


async def _found(
    store: Store, addresses: AsyncIterator[Address], tenants: Sequence[str], user: str | None
) -> list[Address]:
    """Return the sessions of some tenants, oldest first; those whose row cannot be read come before them."""
    found, unreadable = list[SessionRow](), list[Address]()
    async for at in addresses:
        if at.tenant not in tenants:
            continue
        try:
            row = await store.get(at)
        except NotFound:  # deleted since
            continue
        except StoreDamaged:
            unreadable.append(at)
            continue
        if user in (None, row.user):
            found.append(row)
    found.sort(key=lambda row: (tenants.index(row.tenant), row.mark()))
    return unreadable + [row.address for row in found]


class _LeftOut:
    """Sessions that cannot be read: with --all, each is named and left out; otherwise the error is raised."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed, self.count = allowed, 0

    def __call__(self, at: Address, error: TurnstateError) -> None:
        if not self._allowed:
            raise error
        self.count += 1
        screen.say(f"session {at.session} is left out: {error}")


async def _present(
    sessions: SessionManager, chosen: Sequence[Address], left_out: _LeftOut
) -> AsyncIterator[SessionRow]:
    """Yield the sessions that still exist when they are reached."""
    for at in chosen:
        try:
            row = await sessions.store.get(at)
        except NotFound:
            screen.say(f"session {at.session} was deleted during the export")
            continue
        except StoreDamaged as error:
            left_out(at, error)
            continue
        if is_incomplete(row):
            screen.say(f"session {at.session} skipped: its import is not finished")
        else:
            yield row


async def _archive(
    sessions: SessionManager,
    chosen: Sequence[Address],
    left_out: _LeftOut,
    write: destination.Write,
    step: Step,
) -> int:
    damaged, session, progress = 0, "", _ArchiveProgress(step)
    addresses = (row.address async for row in _present(sessions, chosen, left_out))
    async for line in archive(sessions.store, addresses, left_out=left_out):
        write(encode_line(line))
        progress.add(line)
        if isinstance(line, ArchivedSession):
            session = line.id
        if isinstance(line, ArchivedEntry) and line.damaged:
            damaged += 1
            place = f"{line.id or f'{line.seq} of branch {line.branch}'} of session {session}"
            screen.say(f"entry {place} is damaged: the archive keeps its position without its content")
    return 1 if damaged or left_out.count else 0


async def _page(
    sessions: SessionManager, chosen: Sequence[Address], left_out: _LeftOut, write: destination.Write
) -> int:
    if len(chosen) != 1:
        raise click.UsageError(f"html is one page for one session; {len(chosen):,} were named")
    damage = Damage()
    async for row in _present(sessions, chosen, left_out):
        page = await read_page(sessions, row, log=WatchedLog(sessions.store, damage))
        write("".join(html_page(page)).rstrip("\n"))
    for notice in damage.notices():
        screen.say(notice)
    return 1 if damage.lost or left_out.count else 0


class _ArchiveProgress:
    """Progress of an archive in sessions, and within a long session in entries."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._sessions = self._entries = self._seen = 0

    def add(self, line: Header | ArchiveLine) -> None:
        """Count a line that was written."""
        match line:
            case ArchivedSession():
                self._report()
                self._sessions, self._entries, self._seen = self._sessions + 1, 0, 0
            case ArchivedBranch(entries=entries):
                self._entries += entries
            case ArchivedEntry():
                self._seen += 1
                if self._seen % STEP == 0:
                    self._report()
            case ArchiveEnd():
                self._report()

    def _report(self) -> None:
        """Report the finished sessions and the finished part of the current one."""
        if self._sessions:
            part = WHOLE * self._seen // self._entries if self._entries else WHOLE
            self._step((self._sessions - 1) * WHOLE + part, self._sessions)


async def _render(
    sessions: SessionManager,
    chosen: Sequence[Address],
    left_out: _LeftOut,
    target: Format | str,
    write: destination.Write,
    step: Step,
    *,
    one: bool,
    quiet: bool,
) -> int:
    done, lost = 0, False
    async for row in _present(sessions, chosen, left_out):
        damage = Damage()
        try:
            found = await conversation(WatchedLog(sessions.store, damage), row)
        except StoreDamaged as error:
            left_out(row.address, error)
            continue
        for notice in damage.notices():
            screen.say(f"session {row.id}: {notice}")
        lost |= bool(damage.lost)
        try:
            if isinstance(target, str):
                text = markdown(found.all_messages).rstrip("\n")
                write(text if one else f"# {_titled(row)}\n\n{text}\n")
            else:
                payload = _payload(row, found.window(), target, quiet=quiet)
                write(documents.indented(payload) if one else documents.compact(payload))
        except TurnstateError as error:
            error.add_note(f"session {row.id}")
            raise
        done += 1
        step(done * WHOLE, done)
    return 1 if lost or left_out.count else 0


def _payload(row: SessionRow, window: Window, target: Format, *, quiet: bool) -> Any:
    rendering = rendered(elsewhere(window.messages, target.name), target)
    if not quiet:
        left_out = map(str, rendering.left_out)
        for note in (*left_out, *(repair.text for repair in window.report.repairs)):
            screen.say(f"session {row.id}: note: {note}")
    return documents.annotated(rendering.payload, {"id": row.id}, target)


def _titled(row: SessionRow) -> str:
    return screen.escaped(f"{row.title} ({row.id})" if row.title else row.id)
