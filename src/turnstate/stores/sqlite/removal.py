"""Removal: a session leaves no byte behind.

Deleting takes it out of every query. Its bytes are another matter. SQLite overwrites deleted cells, but
a page that was rebalanced keeps stale copies of cells that moved; the index marks deleted rows and has
their words until its parts are merged; the log of writes has the old pages. So scrubbing merges the
index, writes the file anew, moves the log of writes into it and cuts that to nothing. The last needs a
moment in which nobody reads. One scrubbing serves any number of removals.
"""

from __future__ import annotations

import time

import apsw

from ...errors import StoreDamaged
from ..values import Address, Removed
from .queries import query
from .rows import session_place

__all__ = ["remove", "room", "scrub"]

SPARE = 256_000
"""Bytes for the pages of indexes that even a short session changes."""

_TRIES = 100
_PAUSE = 0.02

_DROPS = ("words", "entries", "damaged", "branches", "keys", "tags", "parcels", "session")


def remove(db: apsw.Connection, at: Address) -> Removed:
    """Delete a session with everything that hangs on it."""
    which = {"key": session_place(db, at).key, **at._asdict()}
    ((entries, branches, keys, parcels),) = db.execute(query("counts"), which)
    ((promised, indexed),) = db.execute(query("entry_counts"), which)
    if indexed != entries or promised > entries:
        raise StoreDamaged(
            f"an index leads to {min(indexed, entries)} of {max(promised, indexed, entries)} entries of "
            f"session {at.session}; the others would stay; run `turnstate verify --repair`, then delete it"
        )
    for name in _DROPS:
        db.execute(query(f"drop_{name}"), which)
    return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)


def room(db: apsw.Connection, at: Address) -> str:
    """Say how much room a deletion needs: every page that it changes stands in the log of writes first."""
    ((size,),) = db.execute(query("size"), session_place(db, at)._asdict())
    return (
        f"the disk of {db.filename} is full, and nothing is deleted: session {at.session} takes about "
        f"{(size * 2 + SPARE) / 1e6:,.1f} MB in the log of writes to delete; free that much and try again"
    )


def scrub(db: apsw.Connection) -> bool:
    """Overwrite what deleted sessions left; tell whether that came about while others used the file."""
    for _ in range(_TRIES):
        try:
            db.execute(query("optimize_words"))
            db.execute("VACUUM")
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                return True
        except (apsw.BusyError, apsw.LockedError):
            pass  # somebody writes; SQLite does not wait for them here
        time.sleep(_PAUSE)
    return False
