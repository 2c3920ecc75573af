"""Leases in PostgreSQL: a fence that only grows, and a time that lets go of the dead.

Each is one statement that changes the row only if the lease allows it; why one did not is asked afterwards.
"""

from __future__ import annotations

from ...errors import Busy, Fenced
from ..values import Address, Lease
from .connections import Connections
from .directory import session_at

__all__ = ["PostgresLeases"]


class PostgresLeases:
    """The lease of a session is part of its row."""

    _connections: Connections

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        asked = {"holder": holder, "until": until, "now": now}
        for (fence,) in await self._connections.write("acquire", **at._asdict(), **asked):
            return Lease(fence=fence, until=until)
        row = await session_at(self._connections, at)
        raise Busy(f"session {at.session} is leased by {row.holder or 'another worker'}")

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        asked = {"fence": lease.fence, "until": until}
        for (fence,) in await self._connections.write("renew", **at._asdict(), **asked):
            return Lease(fence=fence, until=until)
        await session_at(self._connections, at)
        raise Fenced(f"the lease of session {at.session} was taken over; open the session again")

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        await self._connections.write("release", **at._asdict(), fence=lease.fence, now=now)
