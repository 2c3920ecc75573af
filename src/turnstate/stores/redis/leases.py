"""Leases on the server: a fence that only grows, and a time that lets go of the dead."""

from __future__ import annotations

from ...errors import Busy, Fenced
from ..values import Address, Lease
from .layout import MOST, named, natural, session_keys, text
from .log import refusal
from .scripts import script
from .server import Server

__all__ = ["RedisLeases"]


class RedisLeases:
    """The lease of a session is part of its row."""

    _server: Server

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        answer = await self._lease(at, b"acquire", text(holder), _time(until), _time(now), b"")
        if answer[0] == b"busy":
            whose = answer[1].decode(errors="replace") or "another worker"
            raise Busy(f"session {at.session} is leased by {whose}")
        if answer[0] != b"held":
            raise refusal(at, answer)
        return Lease(fence=int(answer[1]), until=until)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        answer = await self._lease(at, b"renew", b"", _time(until), b"0", _fence(lease))
        if answer[0] == b"fenced":
            raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
        if answer[0] != b"held":
            raise refusal(at, answer)
        return Lease(fence=lease.fence, until=until)

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        whose = (named(at.tenant), text(at.session))
        await self._lease(at, b"release", b"", b"0", _time(now), _fence(lease), *whose)

    async def _lease(self, at: Address, deed: bytes, *asked: bytes) -> list[bytes]:
        # A lease whose answer was lost would look like another's when it is asked for again.
        twice = deed != b"acquire"
        answer: list[bytes] = await self._server.run(
            script("lease"), session_keys(at), [deed, *asked], twice=twice
        )
        return answer


def _fence(lease: Lease) -> bytes:
    return b"%d" % min(max(lease.fence, -MOST), MOST)


def _time(moment: int) -> bytes:
    return b"%d" % natural(moment)
