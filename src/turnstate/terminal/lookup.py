"""Finds the session that a person means, by a name or from a list, and an entry by its id in any session.

A session can be named by its id, by ``last`` (the newest activity), by its title, or by a unique prefix of
its id or title. The first of these that applies wins, so an exact id is never taken for anything else.
Destructive commands use `precise`: if no person can be asked, they accept only the whole id.

Instead of a name, a person at a terminal can pick from the newest sessions. They are listed on stderr, each
with a number and the beginning of its last message. A number picks a session, words filter the list by id,
title, user and tags, and Enter picks the first. Without a terminal there is no one to ask.

Entries are searched page by page through all sessions, newest first, unless the session is known.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click

from ..config.binding import bound
from ..errors import NotFound
from ..home import Home
from ..log.entries import last_messages
from ..log.path import path_to
from ..plain_text import first_words
from ..session import SessionManager
from ..stores.values import Address, Order, Row, SessionFilter, SessionRow
from . import screen
from .times import ago

PAGE = 500
MAX_SHOWN = 5
LAST = "last"
ADVICE = "`turnstate sessions` lists them"
FIRST_STEPS = (
    "--store names another store, `turnstate chat` begins a session, `turnstate import` adds some, "
    "`turnstate demo` shows what they are"
)

LISTED = 15
COLUMNS = ("", "id", "active", "entries", "title", "last words")
SEARCHED = 3  # messages that are searched for the last words: tool results have none
NAMING = "an id, the beginning of one, a title, or last"

EntryPlace = tuple[SessionRow, Row]
"""An entry and the session that contains it."""


async def session(sessions: SessionManager, name: str, *, user: str | None = None) -> SessionRow:
    """Return the session with this id, title or unique prefix, or the most recently active for ``last``."""
    if row := await _known(sessions, name, user):
        return row
    candidates = _Candidates(name)
    async for row in walk(sessions, SessionFilter(user=user)):
        candidates.add(row)
    return candidates.only(f"there is no session {name}; ")


async def newest_in(
    sessions: SessionManager, folder: Path, *, home: Home, user: str | None = None
) -> SessionRow:
    """Return the most recently active session that is bound to a folder; name another one in the error."""
    newest: SessionRow | None = None
    async for row in walk(sessions, SessionFilter(user=user), order="active"):
        known = bound(row, home)
        if known is not None and known.is_in(folder):
            return row
        newest = newest or row
    if newest is None:
        raise NotFound(f"there is no session yet: {FIRST_STEPS}")
    known = bound(newest, home)
    where = f" of {known.folder}" if known and known.folder else ""
    title = f" “{newest.title}”" if newest.title else ""
    raise NotFound(
        f"no session belongs to this folder; the newest is {newest.id}{title}{where}: "
        f"`turnstate chat --resume {newest.id}` opens it here"
    )


async def precise(sessions: SessionManager, name: str, *, asks: bool, user: str | None = None) -> SessionRow:
    """Return the session with this id; accept a short form only if a person is asked afterwards."""
    if row := await exact(sessions, name, user=user):
        return row
    if asks:
        return await session(sessions, name, user=user)
    raise NotFound(f"there is no session {name}; without a terminal this command takes only a whole id")


async def session_or_entry(
    sessions: SessionManager, name: str, *, user: str | None = None
) -> SessionRow | EntryPlace:
    """Return a session, or an entry with its session; an entry id is ``ID`` or ``ID/CALL``."""
    if row := await _known(sessions, name, user):
        return row
    candidates = _Candidates(name)
    async for page in _pages(sessions, SessionFilter(user=user)):
        if place := await _find(sessions, page, name):
            return place
        for row in page:
            candidates.add(row)
    return candidates.only(f"there is no session, message or output {name}; ")


async def entry(sessions: SessionManager, row: SessionRow, id: str) -> EntryPlace:
    """Return an entry of one session."""
    if place := await _find(sessions, [row], id):
        return place
    raise NotFound(f"session {row.id} has no entry {id}; `turnstate show {row.id}` shows what it has")


async def walk(
    sessions: SessionManager, which: SessionFilter, *, order: Order = "created"
) -> AsyncIterator[SessionRow]:
    """Iterate over the sessions that match a filter, newest first by creation or by activity."""
    async for page in _pages(sessions, which, order):
        for row in page:
            yield row


async def exact(sessions: SessionManager, id: str, *, user: str | None = None) -> SessionRow | None:
    """Return the session with exactly this id, or None."""
    try:
        row = await sessions.store.get(Address(sessions.tenant, id))
    except NotFound:
        return None
    return row if user in (None, row.user) else None


async def _known(sessions: SessionManager, name: str, user: str | None) -> SessionRow | None:
    """Return the session with exactly this id, else for ``last`` the one with the newest activity."""
    if (row := await exact(sessions, name, user=user)) or name != LAST:
        return row
    newest = await sessions.store.page(sessions.tenant, SessionFilter(user=user), order="active", limit=1)
    return newest[0] if newest else None


async def _pages(
    sessions: SessionManager, which: SessionFilter, order: Order = "created"
) -> AsyncIterator[Sequence[SessionRow]]:
    after = None
    while page := await sessions.store.page(sessions.tenant, which, order=order, after=after, limit=PAGE):
        yield page
        after = page[-1].mark(order)


async def _find(sessions: SessionManager, page: Sequence[SessionRow], id: str) -> EntryPlace | None:
    # A call id may contain slashes itself, so every prefix before a slash may be the entry's id.
    ids = [id, *(id[:place] for place, character in enumerate(id) if character == "/")]
    found = await asyncio.gather(*(_rows(sessions, row, ids) for row in page))
    return next(((row, rows[0]) for row, rows in zip(page, found, strict=True) if rows), None)


async def _rows(sessions: SessionManager, row: SessionRow, ids: Sequence[str]) -> list[Row]:
    try:
        return await sessions.store.find(row.address, ids)
    except NotFound:  # the session was deleted in the meantime
        return []


class _Candidates:
    """The sessions that a name may mean, collected while all of them are listed once."""

    def __init__(self, name: str) -> None:
        self._name, self._folded = name, name.casefold()
        self._ids = list[str]()
        self._titled, self._beginning = list[SessionRow](), list[SessionRow]()

    def add(self, row: SessionRow) -> None:
        """Add a session if it matches the name."""
        self._ids.append(row.id)
        title = row.title.casefold()
        if title == self._folded != "":
            self._titled.append(row)
        if row.id.startswith(self._name) or title.startswith(self._folded):
            self._beginning.append(row)

    def only(self, otherwise: str) -> SessionRow:
        """Return the only match; raise `NotFound` if there is none, or if there are several.

        `otherwise` is the beginning of the error message if there is none; advice is added to it.
        """
        found = self._titled or self._beginning
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFound(otherwise + (ADVICE if self._ids else f"this store has none yet: {FIRST_STEPS}"))
        how = "the title" if self._titled else "the beginning"
        shown = ", ".join(f"{row.id} “{row.title}”" if row.title else row.id for row in found[:MAX_SHOWN])
        more = f" and {len(found) - MAX_SHOWN:,} more" if len(found) > MAX_SHOWN else ""
        count = self._enough([row.id for row in found])
        enough = "1 character of an id is" if count == 1 else f"{count} characters of an id are"
        raise NotFound(f"{self._name} is {how} of {len(found):,} sessions: {shown}{more}; {enough} enough")

    def _enough(self, ids: Sequence[str]) -> int:
        """Return how many leading characters distinguish each of these ids from all others."""
        ordered = sorted(self._ids)
        needed = 1
        for id in ids:
            place = bisect_left(ordered, id)
            for other in (*ordered[max(0, place - 1) : place], *ordered[place + 1 : place + 2]):
                needed = max(needed, min(len(id), _common(id, other) + 1))
        return needed


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def can_pick() -> bool:
    """True if the list can be shown and the answer read."""
    return screen.can_ask() and screen.on_terminal()


async def chosen(sessions: SessionManager, name: str | None, *, user: str | None = None) -> SessionRow:
    """Return the named session; without a name, ask the user to pick one."""
    if name is not None:
        return await session(sessions, name, user=user)
    if not can_pick():
        raise click.UsageError(f"name a session: {NAMING}; {ADVICE}")
    rows = [row async for row in walk(sessions, SessionFilter(user=user), order="active")]
    if not rows:
        raise NotFound(f"this store has no session yet; {FIRST_STEPS}")
    return await _picked(sessions, rows)


async def _picked(sessions: SessionManager, rows: Sequence[SessionRow]) -> SessionRow:
    """Ask until one session is picked; raise `click.Abort` if none is wanted."""
    shown = rows
    while True:
        screen.flush()
        cells = [await _cells(sessions, number, row) for number, row in enumerate(shown[:LISTED], start=1)]
        click.echo(screen.table(COLUMNS, cells, right=("", "entries")), err=True)
        if len(shown) > LISTED:
            click.echo(f"… and {len(shown) - LISTED:,} more; type words to filter", err=True)
        answer = click.prompt(
            "Number, words, Enter for 1, q to quit", default="1", show_default=False, err=True
        )
        answer = answer.strip()
        if answer in ("q", "quit"):
            raise click.Abort
        if answer.isdecimal() and 1 <= int(answer) <= min(len(shown), LISTED):
            return shown[int(answer) - 1]
        found = matching(rows, answer)
        if len(found) == 1:
            return found[0]
        if not found:
            click.echo(f"nothing matches {screen.escaped(answer, 60)}; all sessions again:", err=True)
        shown = found or rows


def matching(rows: Sequence[SessionRow], words: str) -> list[SessionRow]:
    """Return the sessions whose id, title, user or tags contain all the words."""
    wanted = words.casefold().split()
    return [row for row in rows if all(word in _searched(row) for word in wanted)]


def _searched(row: SessionRow) -> str:
    return "\n".join((row.id, row.title, row.user or "", *row.tags)).casefold()


async def _cells(sessions: SessionManager, number: int, row: SessionRow) -> tuple[str, ...]:
    path = await path_to(sessions.store, row.address, row.head)
    last = [one.text for one in await last_messages(sessions.store, row.address, path, SEARCHED) if one.text]
    words = first_words(last[-1]) if last else ""
    return str(number), row.id, ago(row.active), f"{row.seq:,}", first_words(row.title, 30), words
