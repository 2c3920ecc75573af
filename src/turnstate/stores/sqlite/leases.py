"""Leases in SQLite: a fence that only grows, and a time that lets go of the dead."""

from __future__ import annotations

import apsw
from msgspec import structs

from ...errors import Busy, Fenced, NotFound
from ..values import Address, Lease
from .queries import query
from .rows import advance_columns, session_row
from .writer import Writer

__all__ = ["SqliteLeases"]


class SqliteLeases:
    """The lease of a session is part of its row."""

    _writer: Writer

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        return await self._writer.run(lambda db: _acquire(db, at, holder, until, now))

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        return await self._writer.run(lambda db: _renew(db, at, lease, until))

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        await self._writer.run(lambda db: _release(db, at, lease, now))


def _acquire(db: apsw.Connection, at: Address, holder: str, until: int, now: int) -> Lease:
    key, row = session_row(db, at)
    if row.lease_until > now:
        raise Busy(f"session {at.session} is leased by {row.holder or 'another worker'}")
    lease = Lease(fence=row.fence + 1, until=until)
    _set(db, key, lease, holder)
    return lease


def _renew(db: apsw.Connection, at: Address, lease: Lease, until: int) -> Lease:
    key, row = session_row(db, at)
    if row.fence != lease.fence:
        raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
    renewed = Lease(fence=lease.fence, until=until)
    _set(db, key, renewed, row.holder)
    return renewed


def _release(db: apsw.Connection, at: Address, lease: Lease, now: int) -> None:
    try:
        key, row = session_row(db, at)
    except NotFound:
        return
    if row.fence == lease.fence:
        active = max(row.active, min(row.lease_until, now))
        released = structs.replace(row, lease_until=0, holder="", active=active)
        db.execute(query("advance_session"), advance_columns(key, released, marks=0))


def _set(db: apsw.Connection, key: int, lease: Lease, holder: str) -> None:
    columns = {"key": key, "fence": lease.fence, "lease_until": lease.until, "holder": holder}
    db.execute(query("lease_session"), columns)
