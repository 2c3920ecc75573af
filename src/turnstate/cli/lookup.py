"""Finding what an id means: a session, by all of its id or its beginning; an entry, in whatever session.

An entry is looked for in one session after the other, the newest first. Who knows the session says so,
and nothing else is looked through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from ..errors import NotFound
from ..session import SessionManager
from ..stores.values import Address, Filter, Row, SessionRow

__all__ = ["Place", "entry", "session", "session_or_entry", "walk"]

PAGE = 500
MOST_SHOWN = 5

Place = tuple[SessionRow, Row]
"""An entry, and the session it stands in."""


async def session(sessions: SessionManager, id: str, *, user: str | None = None) -> SessionRow:
    """Give the session of that id, or the only one whose id begins so."""
    if row := await _exact(sessions, id, user):
        return row
    found = [row async for row in walk(sessions, Filter(user=user)) if row.id.startswith(id)]
    return _only(found, id, f"there is no session {id}")


async def session_or_entry(
    sessions: SessionManager, id: str, *, user: str | None = None
) -> SessionRow | Place:
    """Give a session, or an entry and its session; an entry is meant by ``ID`` and by ``ID/CALL``."""
    if row := await _exact(sessions, id, user):
        return row
    candidates = list[SessionRow]()
    async for page in _pages(sessions, Filter(user=user)):
        if place := await _among(sessions, page, id):
            return place
        candidates += [row for row in page if row.id.startswith(id)]
    return _only(candidates, id, f"there is no session, message or output {id}")


async def entry(sessions: SessionManager, row: SessionRow, id: str) -> Place:
    """Give an entry of one session."""
    if place := await _among(sessions, [row], id):
        return place
    raise NotFound(f"session {row.id} has no entry {id}")


async def walk(sessions: SessionManager, which: Filter) -> AsyncIterator[SessionRow]:
    """Walk the sessions that a filter lets through, the newest first."""
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


async def _among(sessions: SessionManager, page: Sequence[SessionRow], id: str) -> Place | None:
    ids = [id, *(id[:place] for place, character in enumerate(id) if character == "/")]
    found = await asyncio.gather(*(_find(sessions, row, ids) for row in page))
    return next(((row, rows[0]) for row, rows in zip(page, found, strict=True) if rows), None)


async def _find(sessions: SessionManager, row: SessionRow, ids: Sequence[str]) -> list[Row]:
    try:
        return await sessions.store.find(row.address, ids)
    except NotFound:  # removed meanwhile
        return []


def _only(candidates: Sequence[SessionRow], id: str, otherwise: str) -> SessionRow:
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NotFound(otherwise)
    shown = ", ".join(row.id for row in candidates[:MOST_SHOWN])
    more = f" and {len(candidates) - MOST_SHOWN:,} more" if len(candidates) > MOST_SHOWN else ""
    raise NotFound(f"{id} is the beginning of several ids: {shown}{more}; give more of it")
