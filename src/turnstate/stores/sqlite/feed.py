"""The feed in SQLite: entries in the order of their keys, which is the order of commits.

There is one writer at a time, and a reader sees a snapshot, so no entry appears below a key that has been
seen. Keys are never reused. As elsewhere, the entries of a session are compared with what its row promises.
"""

from __future__ import annotations

from contextlib import suppress

import apsw

from ...errors import NotFound, StoreDamaged
from ..values import Address, FeedItem, FeedPage, Row, feed_number
from .faults import UNREADABLE
from .queries import SQL
from .rows import entry_row, session_place, stored_id


def since(db: apsw.Connection, at: Address, id: str | None, limit: int) -> list[Row]:
    """Return the entries of a session, on all branches, that were written after a given one."""
    key, after = session_place(db, at).key, 0
    if id is not None:
        named = {"key": key, "id": stored_id(id)}
        found = list(db.execute(SQL["key_of_entry"], named)) or list(db.execute(SQL["scan_for_key"], named))
        if not found:
            raise NotFound(f"session {at.session} has no entry {id}")
        ((after,),) = found
    which = {"key": key, "after": after, "limit": limit}
    with suppress(*UNREADABLE):  # the table scan below reports what cannot be read
        ((is_indexed,),) = db.execute(SQL["ids_are_indexed"], which)
        if is_indexed:
            return [entry_row(columns) for columns in db.execute(SQL["since"], which)]
    ((promised, _),) = db.execute(SQL["entry_counts"], which)
    ((there,),) = db.execute(SQL["scanned_entries"], which)
    if there != promised:
        raise StoreDamaged(
            f"session {at.session} should have {promised} entries, and {there} can be read; "
            "run `turnstate verify`"
        )
    return [entry_row(columns) for columns in db.execute(SQL["scan_since"], which)]


def feed(db: apsw.Connection, tenant: str, cursor: str, limit: int) -> FeedPage:
    """Return the entries of all sessions of a tenant after a cursor."""
    after = feed_number(cursor)
    which = {"tenant": tenant, "after": after, "limit": limit}
    items = [
        FeedItem(session=session, row=entry_row(columns), cursor=str(key))
        for key, session, *columns in db.execute(SQL["feed"], which)
    ]
    if items and len(items) == limit:
        return FeedPage(items, items[-1].cursor)
    return FeedPage(items, str(max(after, int(feed_end(db)))))


def feed_end(db: apsw.Connection) -> str:
    """Return the cursor after all entries that exist now."""
    ((last,),) = db.execute(SQL["last_entry"])
    return str(last)
