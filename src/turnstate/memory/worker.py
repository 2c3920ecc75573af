"""Backoff: how long to wait before the next try, longer each time and never the same for two.

Seven waits lead from five seconds to six hours, seven and a half hours in all: an engine that is down
for a night finds its parcels waiting. Half of each wait is left to chance, so that a thousand parcels
which failed together do not come back together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal

from msgspec import Struct

from ..clock import Clock, wall_clock
from ..errors import InputError, NotFound, StoreError
from ..log.outbox import Contents, Ending, contents
from ..stores.port import Store
from ..stores.values import Address, Parcel, SessionRow
from ..value import check_number, check_whole
from . import handover
from .port import MemoryEngine

__all__ = ["FIRST", "GRACE", "LONGEST", "MOST_TRIES", "TIMEOUT", "Delivery", "Worker", "failure", "wait"]

MOST_TRIES = 8
FIRST = 5_000
FACTOR = 4
LONGEST = 6 * 3600 * 1000


def wait(tries: int, random: Random) -> int:
    """Return the milliseconds to wait after so many tries."""
    longest = min(LONGEST, FIRST * FACTOR ** max(0, tries - 1))
    return int(longest * random.uniform(0.5, 1.0))


# Foreign code: a call of somebody else's engine, whatever it does.


GRACE = 5.0
"""Seconds for a call to end after it was cancelled; then it is left behind."""

LONGEST_ERROR = 500

_left_behind = set[asyncio.Task[BaseException | None]]()


async def failure(call: Callable[[], Awaitable[object]], *, timeout: float) -> str | None:
    """Make a call and say why it failed, or nothing."""
    task = asyncio.ensure_future(_contained(call))
    try:
        await asyncio.wait({task}, timeout=timeout)
    finally:  # also where whoever waits is cancelled
        if not task.done():
            await _end(task)
    if not task.done() or task.cancelled():
        return f"no answer within {timeout:g} s"
    return _described(task.result())


async def _contained(call: Callable[[], Awaitable[object]]) -> BaseException | None:
    """Turn whatever is raised into a value, except what was raised to stop this very task."""
    try:
        await call()
    except KeyboardInterrupt:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return error
    except BaseException as error:
        return error
    return None


async def _end(task: asyncio.Task[BaseException | None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    if not task.done():
        _left_behind.add(task)  # the event loop alone would not keep it from being collected
        task.add_done_callback(_left_behind.discard)


def _described(error: BaseException | None) -> str | None:
    """Put an error into a line that any store can keep."""
    if error is None:
        return None
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be told"
    told = f"{name}: {text}" if text else name
    return told[:LONGEST_ERROR].replace("\0", "").encode(errors="replace").decode()


# Delivery: a worker that takes parcels from a store's outbox to a memory engine.


TIMEOUT = 300.0
"""Seconds that an engine may take for one parcel, however long the session was."""

MARGIN = 60.0
"""Seconds by which a claim outlasts a delivery: for the store's own work, and clocks that differ."""

Result = Literal["delivered", "delayed", "parked", "dropped"]

_log = logging.getLogger(__name__)


class Delivery(Struct, frozen=True, kw_only=True):
    """What one try came to; ``due`` is when a delayed parcel is tried again."""

    parcel: Parcel
    result: Result
    error: str = ""
    due: int | None = None


def _untold(_delivery: Delivery) -> None:
    """Tell nobody."""


class Worker:
    """Delivers what is due, one parcel at a time; any number of workers may share a store."""

    def __init__(
        self,
        store: Store,
        engine: MemoryEngine,
        *,
        tenant: str | None = None,
        clock: Clock = wall_clock,
        random: Random | None = None,
        most_tries: int = MOST_TRIES,
        timeout: float = TIMEOUT,
        tell: Callable[[Delivery], None] = _untold,
    ) -> None:
        check_whole("most_tries", most_tries, least=1)
        check_number("timeout", timeout, least=0, most=86_400, above=True)
        self._store, self._engine, self._tenant = store, engine, tenant
        self._clock, self._random = clock, random or Random()  # noqa: S311
        self._most_tries, self._timeout, self._tell = most_tries, timeout, tell

    async def run_once(self, stop: asyncio.Event | None = None) -> Counter[Result]:
        """Try everything that is due now once, and count what came of it."""
        now, counts = self._clock(), Counter[Result]()
        while not (stop and stop.is_set()) and (parcel := await self._take(now)):
            delivery = await self._deliver(parcel)
            counts[delivery.result] += 1
            self._tell(delivery)
        return counts

    async def run(self, stop: asyncio.Event, *, interval: float = 5.0) -> Counter[Result]:
        """Deliver until told to stop; the parcel in hand still arrives. A store may be away for a while."""
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
                parcel, f"begun {parcel.tries - 1} times and never ended: workers died of it"
            )
        try:
            row, inside = await self._store.get(_address(parcel)), contents(parcel)
        except NotFound:
            return await self._drop(parcel)
        except InputError as unreadable:  # the next try would find the same
            return await self._park(parcel, str(unreadable))
        error = await failure(lambda: self._hand_over(parcel, row, inside), timeout=self._timeout)
        if not await self._still_there(parcel):
            return await self._take_back(parcel)
        if error is None:
            await self._store.delivered(parcel.id)
            return Delivery(parcel=parcel, result="delivered")
        if parcel.tries >= self._most_tries:
            return await self._park(parcel, error)
        return await self._delay(parcel, error)

    async def _hand_over(self, parcel: Parcel, row: SessionRow, inside: Contents) -> None:
        if isinstance(inside, Ending):
            await self._engine.ingest(await handover.record(self._store, row, parcel.id, inside))
        else:
            evicted = await handover.evicted(self._store, row, parcel.id, inside)
            await self._engine.archive(evicted, inside.summary)

    async def _still_there(self, parcel: Parcel) -> bool:
        try:
            await self._store.get(_address(parcel))
        except NotFound:
            return False
        return True

    async def _take_back(self, parcel: Parcel) -> Delivery:
        """Forget what was handed over of a session that was erased in the meantime."""
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
