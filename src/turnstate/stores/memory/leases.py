"""The leases of the memory store: a fence that only grows, and until when its holder writes alone."""

from __future__ import annotations

from msgspec import structs

from ...errors import Busy, Fenced
from ..values import Address, Lease
from .state import Port

__all__ = ["MemoryLeases"]


class MemoryLeases(Port):
    """Who may write."""

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        with self._state.lock:
            kept = self._state.kept(at)
            if kept.row.lease_until > now:
                raise Busy(f"session {at.session} is leased by {kept.row.holder or 'another worker'}")
            fence = kept.row.fence + 1
            kept.row = structs.replace(kept.row, fence=fence, lease_until=until, holder=holder)
            return Lease(fence=fence, until=until)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        with self._state.lock:
            kept = self._state.kept(at)
            if kept.row.fence != lease.fence:
                raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
            kept.row = structs.replace(kept.row, lease_until=until)
            return Lease(fence=lease.fence, until=until)

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        with self._state.lock:
            kept = self._state.sessions.get(at)
            if kept and kept.row.fence == lease.fence:
                active = max(kept.row.active, min(kept.row.lease_until, now))
                kept.row = structs.replace(kept.row, lease_until=0, holder="", active=active)
