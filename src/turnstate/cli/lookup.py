"""Finds a session by its id or a unique prefix of it, and an entry by its id in any session.

Entries are searched page by page through all sessions, newest first, unless the session is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from ..errors import NotFound
from ..session import SessionManager
from ..stores.values import Address, Filter, Row, SessionRow

__all__ = ["EntryPlace", "entry", "session", "session_or_entry", "walk"]

PAGE = 500
MAX_SHOWN = 5

EntryPlace = tuple[SessionRow, Row]
"""An entry and the session that contains it."""


async def session(sessions: SessionManager, id: str, *, user: str | None = None) -> SessionRow:
    """Return the session with this id, or the only one whose id starts with it."""
    if row := await _exact(sessions, id, user):
        return row
    found = [row async for row in walk(sessions, Filter(user=user)) if row.id.startswith(id)]
    return _only(found, id, f"there is no session {id}")


async def session_or_entry(
    sessions: SessionManager, id: str, *, user: str | None = None
) -> SessionRow | EntryPlace:
    """Return a session, or an entry with its session; an entry id is ``ID`` or ``ID/CALL``."""
    if row := await _exact(sessions, id, user):
        return row
    candidates = list[SessionRow]()
    async for page in _pages(sessions, Filter(user=user)):
        if place := await _find(sessions, page, id):
            return place
        candidates += [row for row in page if row.id.startswith(id)]
    return _only(candidates, id, f"there is no session, message or output {id}")


async def entry(sessions: SessionManager, row: SessionRow, id: str) -> EntryPlace:
    """Return an entry of one session."""
    if place := await _find(sessions, [row], id):
        return place
    raise NotFound(f"session {row.id} has no entry {id}")


async def walk(sessions: SessionManager, which: Filter) -> AsyncIterator[SessionRow]:
    """Iterate over the sessions that match a filter, newest first."""
    async for page in _pages(sessions, which):
        for row in page:
            yield row


async def _exact(sessions: SessionManager, id: str, user: str | None) -> SessionRow | None:
    try:
        row = await sessions.store.get(Address(sessions.tenant, id))
    except NotFound:
        return None
    return row if user in (None, row.user) else None


async def _pages(sessions: SessionManager, which: Filter) -> AsyncIterator[Sequence[SessionRow]]:
    after = None
    while page := await sessions.store.page(sessions.tenant, which, after=after, limit=PAGE):
        yield page
        after = page[-1]


async def _find(sessions: SessionManager, page: Sequence[SessionRow], id: str) -> EntryPlace | None:
    # A call id may contain slashes itself, so every prefix before a slash may be the entry's id.
    ids = [id, *(id[:place] for place, character in enumerate(id) if character == "/")]
    found = await asyncio.gather(*(_rows(sessions, row, ids) for row in page))
    return next(((row, rows[0]) for row, rows in zip(page, found, strict=True) if rows), None)


async def _rows(sessions: SessionManager, row: SessionRow, ids: Sequence[str]) -> list[Row]:
    try:
        return await sessions.store.find(row.address, ids)
    except NotFound:  # the session was deleted meanwhile
        return []


def _only(candidates: Sequence[SessionRow], id: str, otherwise: str) -> SessionRow:
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NotFound(otherwise)
    shown = ", ".join(row.id for row in candidates[:MAX_SHOWN])
    more = f" and {len(candidates) - MAX_SHOWN:,} more" if len(candidates) > MAX_SHOWN else ""
    raise NotFound(f"{id} is a prefix of several session ids: {shown}{more}; use a longer prefix")
