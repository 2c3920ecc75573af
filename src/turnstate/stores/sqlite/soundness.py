"""Checks once per connection that the indexes of sessions and parcels are complete, before they are believed.

An empty page of an index is valid to SQLite, which then finds fewer rows without an error. Every read of a
session is compared with what its row promises (see `log`). But nothing promises which sessions exist and
which parcels wait. So before the first list, the first "not found" and the first look into the outbox, the
rows of each index are counted. If one has lost some, `StoreDamaged` is raised: a search of the table instead
would be a second way to read everything, which runs only on damaged files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import apsw

from ...errors import StoreDamaged
from .queries import SQL

T = TypeVar("T")

MAX_COMPARED = 10_000
"""Up to this many sessions, a list also looks up each of them in every index (11 ms)."""


def once(check: Callable[[apsw.Connection], T]) -> Callable[[apsw.Connection], T]:
    """Remember the answer for as long as the connection is open; an error is not remembered."""
    known: WeakKeyDictionary[apsw.Connection, T] = WeakKeyDictionary()

    @wraps(check)
    def remembered(db: apsw.Connection) -> T:
        if db not in known:
            known[db] = check(db)
        return known[db]

    return remembered


# Not when a connection opens: the count reads the table and its indexes, which takes 0.4 s for 1,000,000
# sessions, and an append to a session that exists never needs it.
@once
def check_sessions(db: apsw.Connection) -> int:
    """Return the number of sessions, or raise `StoreDamaged` if an index does not have all of them."""
    ((sessions, by_id, by_creation, by_user, expiring, by_expiry),) = db.execute(SQL["session_counts"])
    if not sessions == by_id == by_creation == by_user or expiring != by_expiry:
        raise StoreDamaged(
            "sessions are damaged: an index does not lead to all of them; run `turnstate verify --repair`"
        )
    return int(sessions)


@once
def check_lists(db: apsw.Connection) -> None:
    """Raise `StoreDamaged` if a list of sessions may be incomplete or wrong."""
    if check_sessions(db) <= MAX_COMPARED:
        for (line,) in db.execute("PRAGMA integrity_check('session')"):
            if line != "ok":
                raise StoreDamaged(f"sessions are damaged: {line:.80}; run `turnstate verify --repair`")


@once
def check_parcels(db: apsw.Connection) -> None:
    """Raise `StoreDamaged` if the indexes of the outbox do not have all of its parcels."""
    ((parcels, by_due, by_session),) = db.execute(SQL["outbox_counts"])
    if not parcels == by_due == by_session:
        raise StoreDamaged("parcels are missing from the outbox; run `turnstate verify --repair`")
