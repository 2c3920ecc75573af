"""Leases: one worker is the only writer, and gets an error once it no longer is.

A lease is renewed in the background while it is held. A worker that was suspended for too long gets
`Fenced` at its next write, whatever its clock says.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ..errors import Busy, EpochEnded, Fenced, SessionError, TurnstateError
from ..process import Owner
from ..stores.values import FOREVER, Lease
from ..value import check_number
from .names import checked
from .writer import SessionWriter

LONGEST = 86_400
"""Maximum seconds of a lease: a worker that dies while holding one blocks the session for at most a day."""

SEIZED = 5.0
"""Maximum seconds for which a reset keeps other writers out; it releases the lease when it is done."""


def holder_name() -> str:
    """Return a name for this process that shows people who holds a lease."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def acquire(
    writer: SessionWriter, seconds: float, holder: str | None, *, take_over: bool = False
) -> Lease:
    """Take the lease of a session; raise `Busy` if it is held, or `EpochEnded` if the epoch has ended.

    With `take_over`, the holder loses the lease and gets `Fenced` at its next write.
    """
    row = await writer.refresh()
    name = checked(holder, "a holder") if holder is not None else holder_name()
    now, until = writer.clock(), writer.clock() + _milliseconds(seconds)
    if take_over and row.lease_until != FOREVER:  # an import is not interrupted
        now = max(now, row.lease_until)
    writer.lease = await writer.store.acquire(writer.at, holder=name, until=until, now=now)
    try:
        await writer.refresh()
    except EpochEnded:  # the session was reset in between
        await release(writer)
        raise
    return writer.lease


async def renew(writer: SessionWriter, seconds: float) -> Lease:
    """Extend the lease; raise `Fenced` if it is lost, or `EpochEnded` if the session was reset."""
    if writer.lease is None:
        await writer.refresh()
        raise SessionError(f"session {writer.at.session} is not leased by this handle; acquire() first")
    until = writer.clock() + _milliseconds(seconds)
    try:
        writer.lease = await writer.store.renew(writer.at, writer.lease, until=until)
    except Fenced:
        await writer.refresh()
        raise
    return writer.lease


async def release(writer: SessionWriter) -> None:
    """Release the lease, if there is one."""
    lease, writer.lease = writer.lease, None
    if lease is not None:
        await writer.store.release(writer.at, lease, now=writer.clock())


@asynccontextmanager
async def leased(
    writer: SessionWriter, seconds: float, holder: str | None, *, take_over: bool = False
) -> AsyncIterator[Lease]:
    """Hold the lease while the block runs."""
    lease = await acquire(writer, seconds, holder, take_over=take_over)
    keeper = asyncio.create_task(_keep(writer, seconds))
    owner = Owner(keeper, f"the lease of session {writer.at.session}")
    try:
        yield lease
    finally:
        if not owner.is_elsewhere:  # a child that leaves the block does not hold the lease
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
            await release(writer)


async def seized(writer: SessionWriter) -> Lease | None:
    """Take the lease from its holder; return None if another worker took it at the same time."""
    row = await writer.refresh()
    now, until = max(writer.clock(), row.lease_until), writer.clock() + _milliseconds(SEIZED)
    try:
        return await writer.store.acquire(writer.at, holder=holder_name(), until=until, now=now)
    except Busy:
        return None


async def _keep(writer: SessionWriter, seconds: float) -> None:
    """Renew the lease well before it ends; once it is lost, the next write raises `Fenced`."""
    while True:
        await asyncio.sleep(seconds / 3)
        try:
            await renew(writer, seconds)
        except TurnstateError:
            return


def _milliseconds(seconds: float) -> int:
    check_number("seconds", seconds, least=0, most=LONGEST, above=True)
    return max(1, int(seconds * 1000))
