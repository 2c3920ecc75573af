"""The feed in PostgreSQL: entries in key order, up to a key below which no new entry can appear.

A key is taken before its transaction commits, so a lower key may become visible after a higher one. But a
transaction locks the table before it takes a key, and holds the lock until its commit is visible. So once all
transactions that held the lock when a key was seen have ended, everything below that key is visible or was
rolled back. A transaction that never ends delays the feed, but loses nothing.

Keys survive a dump and a restore; transaction ids do not.
"""

from __future__ import annotations

import asyncio
import time

from ...errors import NotFound
from ..values import Address, FeedItem, FeedPage, Row, feed_number
from .connections import Connections
from .log import missing
from .rows import entry_row

PATIENCE = 1.0
"""Seconds that a page waits for open transactions; after that it is empty, and the caller asks again."""

_PAUSE = 0.002


async def since(connections: Connections, at: Address, id: str | None, limit: int) -> list[Row]:
    """Return the entries of a session, on all branches, that were written after a given one."""
    found = await connections.read("key_of_entry", **at._asdict(), id=id or "")
    if not found:
        raise missing(at)
    ((_, after),) = found
    if id is not None and after is None:
        raise NotFound(f"session {at.session} has no entry {id}")
    after = 0 if id is None else after
    rows = await connections.read("since", **at._asdict(), after=after, limit=limit)
    return [entry_row(columns) for columns in rows]


async def feed(connections: Connections, tenant: str, cursor: str, limit: int) -> FeedPage:
    """Return the entries of all sessions of a tenant after a cursor."""
    after = feed_number(cursor)
    until = await _settled(connections, after)
    which = {"tenant": tenant, "after": after, "until": until, "limit": limit}
    items = [
        FeedItem(session=session, row=entry_row(columns), cursor=str(key))
        for key, session, *columns in await connections.read("feed", **which)
    ]
    return FeedPage(items, items[-1].cursor if items and len(items) == limit else str(until))


async def feed_end(connections: Connections) -> str:
    """Return the cursor after all entries that exist now."""
    return str(await last_key(connections))


async def last_key(connections: Connections) -> int:
    """Return the highest visible key."""
    ((last,),) = await connections.read("last_entry")
    return last or 0


async def _settled(connections: Connections, after: int) -> int:
    """Return the highest key below which all entries are visible; wait for transactions in progress."""
    last = await last_key(connections)
    if last <= after:
        return after
    deadline = time.monotonic() + PATIENCE
    waiting = await writers(connections)
    while waiting:
        if time.monotonic() > deadline:
            return after
        await asyncio.sleep(_PAUSE)
        waiting &= await writers(connections)
    return last


async def writers(connections: Connections) -> set[str]:
    """Return the transactions that may have taken a key but have not committed yet."""
    return {writer for (writer,) in await connections.read("writers")}
