"""The worker: delivers the parcels of a store's outbox to a memory engine, at least once each.

An engine is foreign code: it may raise anything, hang, or ignore its cancellation, and the worker still goes
on. After a failure a parcel waits, longer each time: seven waits from five seconds to almost six hours, up
to seven and a half hours in total, so parcels survive an engine that is down for a night. Half of each wait
is random, so that a thousand parcels that failed together do not return together. After the last try a
parcel is parked: it stays in the outbox with its error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal

from msgspec import Struct

from ..errors import InputError, NotFound, StoreError
from ..ids import Clock, wall_clock
from ..log.records import Contents, Ending, contents
from ..stores.port import Store
from ..stores.values import Address, Parcel, SessionRow
from ..value import check_number, check_whole
from . import handover
from .port import MemoryEngine

MAX_TRIES = 8
FIRST_WAIT_MS = 5_000
FACTOR = 4
MAX_WAIT_MS = 6 * 3600 * 1000


def wait(tries: int, random: Random) -> int:
    """Return the milliseconds to wait after this many tries."""
    longest = min(MAX_WAIT_MS, FIRST_WAIT_MS * FACTOR ** max(0, tries - 1))
    return int(longest * random.uniform(0.5, 1.0))


GRACE = 5.0
"""Seconds that a canceled call has to end before it is abandoned."""

MAX_ERROR = 500

_abandoned = set[asyncio.Task[BaseException | None]]()


async def failure(call: Callable[[], Awaitable[object]], *, timeout: float) -> str | None:
    """Make a call; return why it failed, or None."""
    task = asyncio.ensure_future(_caught(call))
    try:
        await asyncio.wait({task}, timeout=timeout)
    finally:  # also if the caller is canceled
        if not task.done():
            await _end(task)
    if not task.done() or task.cancelled():
        return f"no answer within {timeout:g} s"
    return _described(task.result())


async def _caught(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    """Return what the call raises as a value, except KeyboardInterrupt and the cancellation of this task."""
    try:
        await call()
    except KeyboardInterrupt:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return error
    except BaseException as error:  # engines are code of others: SystemExit and Rust panics end up here, too
        return error
    return None


async def _end(task: asyncio.Task[BaseException | None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    if not task.done():
        _abandoned.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(_abandoned.discard)


def _described(error: BaseException | None) -> str | None:
    """Return an error as a line that any store can hold."""
    if error is None:
        return None
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "an error without a readable text"
    line = f"{name}: {text}" if text else name
    return line[:MAX_ERROR].replace("\0", "").encode(errors="replace").decode()


TIMEOUT = 300.0
"""Seconds that an engine may take for one parcel, regardless of the length of the session."""

MARGIN = 60.0
"""Seconds by which a claim outlasts a delivery, to allow for the store's own work and clock differences."""

Result = Literal["delivered", "delayed", "parked", "dropped"]

_log = logging.getLogger(__name__)


class Delivery(Struct, frozen=True, kw_only=True):
    """The result of one try; ``due`` is when a delayed parcel is tried again."""

    parcel: Parcel
    result: Result
    error: str = ""
    due: int | None = None


def _ignore(_delivery: Delivery) -> None:
    """Do nothing."""


class Worker:
    """Delivers parcels that are due, one at a time; any number of workers may share a store."""

    def __init__(
        self,
        store: Store,
        engine: MemoryEngine,
        *,
        tenant: str | None = None,
        clock: Clock = wall_clock,
        random: Random | None = None,
        max_tries: int = MAX_TRIES,
        timeout: float = TIMEOUT,
        on_delivery: Callable[[Delivery], None] = _ignore,
    ) -> None:
        check_whole("max_tries", max_tries, least=1)
        check_number("timeout", timeout, least=0, most=86_400, above=True)
        self._store, self._engine, self._tenant = store, engine, tenant
        self._clock, self._random = clock, random or Random()  # noqa: S311
        self._most_tries, self._timeout, self._on_delivery = max_tries, timeout, on_delivery

    async def run_once(self, stop: asyncio.Event | None = None) -> Counter[Result]:
        """Try every parcel that is due now once, and count the results."""
        now, counts = self._clock(), Counter[Result]()
        while not (stop and stop.is_set()) and (parcel := await self._take(now)):
            delivery = await self._deliver(parcel)
            counts[delivery.result] += 1
            self._on_delivery(delivery)
        return counts

    async def run(self, stop: asyncio.Event, *, interval: float = 5.0) -> Counter[Result]:
        """Deliver until ``stop`` is set; the current parcel is finished. Errors of the store are retried."""
        check_number("interval", interval, least=0, most=86_400, above=True)
        counts = Counter[Result]()
        while not stop.is_set():
            try:
                counts += await self.run_once(stop)
            except StoreError as error:
                _log.warning("the outbox cannot be read, trying again in %g s: %s", interval, error)
            try:
                await asyncio.wait_for(stop.wait(), interval)
            except TimeoutError:
                continue
        return counts

    async def _take(self, now: int) -> Parcel | None:
        until = self._clock() + int((self._timeout + GRACE + MARGIN) * 1000)
        taken = await self._store.take(now, until=until, limit=1, tenant=self._tenant)
        return taken[0] if taken else None

    async def _deliver(self, parcel: Parcel) -> Delivery:
        if parcel.tries > self._most_tries:
            return await self._park(
                parcel,
                f"started {parcel.tries - 1} times and never finished; the workers probably crashed",
            )
        try:
            row, inside = await self._store.get(_address(parcel)), contents(parcel)
        except NotFound:
            return await self._drop(parcel)
        except InputError as unreadable:  # another try would fail in the same way
            return await self._park(parcel, str(unreadable))
        error = await failure(lambda: self._pass_on(parcel, row, inside), timeout=self._timeout)
        if not await self._exists(parcel):
            return await self._forget_erased(parcel)
        if error is None:
            await self._store.delivered(parcel.id)
            return Delivery(parcel=parcel, result="delivered")
        if parcel.tries >= self._most_tries:
            return await self._park(parcel, error)
        return await self._delay(parcel, error)

    async def _pass_on(self, parcel: Parcel, row: SessionRow, inside: Contents) -> None:
        if isinstance(inside, Ending):
            await self._engine.ingest(await handover.record(self._store, row, parcel.id, inside))
        else:
            evicted = await handover.evicted(self._store, row, parcel.id, inside)
            await self._engine.archive(evicted, inside.summary)

    async def _exists(self, parcel: Parcel) -> bool:
        try:
            await self._store.get(_address(parcel))
        except NotFound:
            return False
        return True

    async def _forget_erased(self, parcel: Parcel) -> Delivery:
        """Remove what the engine has received of a session that was erased in the meantime."""
        if error := await failure(lambda: self._engine.forget(_address(parcel)), timeout=self._timeout):
            _log.warning(
                "session %s was erased while it was delivered, and the engine may still hold it: %s",
                parcel.session, error,
            )  # fmt: skip
        return await self._drop(parcel)

    async def _drop(self, parcel: Parcel) -> Delivery:
        await self._store.delivered(parcel.id)
        return Delivery(parcel=parcel, result="dropped", error="the session was erased")

    async def _delay(self, parcel: Parcel, error: str) -> Delivery:
        due = self._clock() + wait(parcel.tries, self._random)
        await self._store.failed(parcel.id, error=error, due=due)
        return Delivery(parcel=parcel, result="delayed", error=error, due=due)

    async def _park(self, parcel: Parcel, error: str) -> Delivery:
        await self._store.failed(parcel.id, error=error, due=None)
        return Delivery(parcel=parcel, result="parked", error=error)


def _address(parcel: Parcel) -> Address:
    return Address(parcel.tenant, parcel.session)
