"""Idempotency keys in SQLite, and when they are forgotten: after seven days in which the store was used.

A process that was started with a wrong clock cannot notice it, and the file has no clock of its own. But time
that really passed in a store in use left keys behind, and a clock that is years ahead leaves a gap. So a key
ages by the time between one keyed write of the store and the next, but by an hour at most: each wrong clock
costs it no more than that. With a keyed write an hour, a key is as old as the clock says. A store that is
seldom used remembers its keys for longer, but never more of them than were written in 168 hours of use.
"""

from __future__ import annotations

import apsw
from msgspec import structs

from ..admission import KnownKey
from ..values import KEY_LIFE, Change, Receipt
from .queries import SQL

LONGEST_STEP = 3600 * 1000
"""Milliseconds by which a key ages, at most, between one keyed write of the store and the next."""

FORGET_EVERY, FORGET_MOST = 32, 200
"""One write in 32 deletes old keys, at most 200 per key that it adds: to find them takes about 0.1 ms."""


def known_key(db: apsw.Connection, key: int, change: Change) -> KnownKey | None:
    """Return what the key of a change was used for in this session; None if it is new or forgotten."""
    if change.key is None:
        return None
    for found in db.execute(SQL["known_key"], {"key": key, "name": change.key.name}):
        digest, epoch, version, branch, first, last, created = found
        receipt = Receipt(epoch=epoch, version=version, branch=branch, first=first, last=last)
        known = KnownKey(digest, receipt, created)
        if known.is_remembered(change) or created > _forgotten_until(db, change.now):
            return known
    return None


def keep_key(db: apsw.Connection, key: int, change: Change, receipt: Receipt) -> None:
    """Store the key of a change to this session, if it has one."""
    if change.key is not None:
        columns = structs.asdict(receipt) | change.key._asdict() | {"key": key, "created": change.now}
        db.execute(SQL["keep_key"], columns)


def forget_keys(db: apsw.Connection, change: Change, added: int) -> None:
    """Delete some forgotten keys, now and then: ``change`` is the last of those that added some."""
    if not change.trusts_clock or change.now % FORGET_EVERY:
        return
    until = change.now - KEY_LIFE
    if db.execute(SQL["has_keys_until"], {"until": until}).fetchone() is not None:
        until = _forgotten_until(db, change.now)
        db.execute(SQL["forget_keys"], {"until": until, "limit": FORGET_MOST * added})


def _forgotten_until(db: apsw.Connection, now: int) -> int:
    """Return the time until which keys are forgotten, -1 if none is."""
    asked = {"now": now, "life": KEY_LIFE, "step": LONGEST_STEP}
    found = db.execute(SQL["forgotten_until"], asked).fetchone()
    return found[0] if found else -1
