"""Leasing: one worker writes alone, and is told when it no longer does.

A lease is renewed in the background while it is held. A worker that was stopped for too long finds
its fence outdated at its next write, whatever its clock says.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ..errors import Busy, EpochEnded, Fenced, SessionError, TurnstateError
from ..stores.values import Lease
from ..value import check_number
from .names import checked
from .writer import SessionWriter

__all__ = ["acquire", "leased", "release", "renew", "seized"]

LONGEST = 86_400
"""Seconds: whoever dies while holding a session blocks it for no longer than a day."""

SEIZED = 5.0
"""Seconds for which a reset holds other writers off, at most: it ends its hold when it is done."""


def holder_name() -> str:
    """Return a name for this process, for people who ask who holds a lease."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def acquire(scribe: SessionWriter, seconds: float, holder: str | None) -> Lease:
    """Take the lease of a session, or raise `Busy`; `EpochEnded` if another epoch runs."""
    await scribe.refresh()
    now, name = scribe.clock(), checked(holder, "a holder") if holder is not None else holder_name()
    until = now + _milliseconds(seconds)
    scribe.lease = await scribe.store.acquire(scribe.at, holder=name, until=until, now=now)
    try:
        await scribe.refresh()
    except EpochEnded:  # reset between the two: the lease is not ours to keep
        await release(scribe)
        raise
    return scribe.lease


async def renew(scribe: SessionWriter, seconds: float) -> Lease:
    """Hold on for longer, or raise `Fenced`; `EpochEnded` if the session was reset."""
    if scribe.lease is None:
        await scribe.refresh()
        raise SessionError(f"session {scribe.at.session} is not leased by this handle; acquire() first")
    until = scribe.clock() + _milliseconds(seconds)
    try:
        scribe.lease = await scribe.store.renew(scribe.at, scribe.lease, until=until)
    except Fenced:
        await scribe.refresh()
        raise
    return scribe.lease


async def release(scribe: SessionWriter) -> None:
    """Give the lease back, if there is one."""
    lease, scribe.lease = scribe.lease, None
    if lease is not None:
        await scribe.store.release(scribe.at, lease, now=scribe.clock())


@asynccontextmanager
async def leased(scribe: SessionWriter, seconds: float, holder: str | None) -> AsyncIterator[Lease]:
    """Hold the lease for as long as the block runs."""
    lease = await acquire(scribe, seconds, holder)
    keeper = asyncio.create_task(_keep(scribe, seconds))
    try:
        yield lease
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        await release(scribe)


async def seized(scribe: SessionWriter) -> Lease | None:
    """Take the lease from whoever has it; return None if another took it at the same moment."""
    row = await scribe.refresh()
    now, until = max(scribe.clock(), row.lease_until), scribe.clock() + _milliseconds(SEIZED)
    try:
        return await scribe.store.acquire(scribe.at, holder=holder_name(), until=until, now=now)
    except Busy:
        return None


async def _keep(scribe: SessionWriter, seconds: float) -> None:
    """Renew well before the lease ends; once it is lost, the next write says so."""
    while True:
        await asyncio.sleep(seconds / 3)
        try:
            await renew(scribe, seconds)
        except TurnstateError:
            return


def _milliseconds(seconds: float) -> int:
    check_number("seconds", seconds, least=0, most=LONGEST, above=True)
    return max(1, int(seconds * 1000))
