"""Changes on their way to a server: one alone is one call, those of the same moment share one.

    alone       answer ──► one call                    ──► an answer
    together    answer ──┐
                answer ──┼► one call for all of them   ──► an answer or an error for each
                answer ──┘

At most two calls are under way; what comes meanwhile is sent with the next. Changes of one session are sent
in order: while some of them are under way, the others wait. The store says how a call is made. For a change
that a call for many could not do it returns None, and the change is sent again alone. What a call raises is
raised to all who share it; a caller who is canceled harms no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, Generic, TypeVar

from ..errors import TurnstateError
from .values import Address, Change

__all__ = ["Batches", "is_plain"]

TOGETHER = 64
"""Changes in one call."""

CALLS = 2
"""Calls under way: while one is on its way to the disk, the next is made."""

FEW = 16
"""Changes that are not worth two calls. Of more than that, half are sent at a time: while the server works on
one half, the callers of the other half have their answers and make their next changes."""

LARGE = 32_768
"""Bytes of a change that is sent alone: it would keep the others waiting."""

J = TypeVar("J")


def is_plain(change: Change) -> bool:
    """Return True if a change only appends, and not much, so that it may share a call."""
    branches = change.fork is not None or change.select is not None
    ends = change.next_epoch or change.end is not None
    large = sum(len(record.body) for record in change.records) > LARGE
    return not (branches or ends or change.parcels or large)


class _Waiting(Generic[J]):
    """A change of a session as it is sent, and who waits for its answer."""

    def __init__(self, at: Address, job: J) -> None:
        self.at, self.job = at, job
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(self, answer: Any) -> None:
        if not self.answer.done():  # or its caller was canceled
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy(error) if isinstance(error, TurnstateError) else error)


class Batches(Generic[J]):
    """Sends changes, as few calls as possible at a time."""

    def __init__(
        self,
        alone: Callable[[J], Awaitable[Any]],
        together: Callable[[Sequence[J]], Awaitable[Sequence[Any]]],
    ) -> None:
        self._alone, self._called = alone, together
        self._waiting = deque[_Waiting[J]]()
        self._calls = self._sent = 0  # calls under way, and the changes in them
        self._busy = set[Address]()  # their changes are under way
        self._tasks = set[asyncio.Task[None]]()
        self._gathering = False
        self._several = False  # the last call had several changes, so several callers may be about to append

    async def answer(self, at: Address, job: J) -> Any:
        """Send a change of a session, and return the answer."""
        waiting = _Waiting(at, job)
        self._waiting.append(waiting)
        if self._calls < CALLS and not self._gathering:
            if self._calls or self._several:
                await self._gather(waiting)
            is_alone = len(self._waiting) == 1 and self._waiting[0] is waiting
            if is_alone and self._calls < CALLS and at not in self._busy:
                return await self._lone(self._waiting.popleft())
            self._send()
        return await waiting.answer

    async def close(self) -> None:
        """Wait until everything is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _gather(self, one: _Waiting[J]) -> None:
        """Let all tasks run that are ready: what they append is sent together."""
        self._gathering = True
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            one.answer.cancel()
            self._send()
            raise
        finally:
            self._gathering = False

    async def _lone(self, one: _Waiting[J]) -> Any:
        """Send the only change that waits, in the task of its caller."""
        self._begin([one])
        try:
            return await self._alone(one.job)
        finally:
            self._end([one])

    def _begin(self, batch: Sequence[_Waiting[J]]) -> None:
        self._calls += 1
        self._sent += len(batch)
        self._several = len(batch) > 1
        self._busy.update(one.at for one in batch)

    def _end(self, batch: Sequence[_Waiting[J]], *, again: Sequence[_Waiting[J]] = ()) -> None:
        """Count a call as ended; sessions whose changes are sent again stay busy."""
        self._calls -= 1
        self._sent -= len(batch)
        self._busy.difference_update(one.at for one in batch)
        self._busy.update(one.at for one in again)
        self._send()

    def _send(self) -> None:
        """Send what waits, as far as calls are free."""
        while self._waiting and self._calls < CALLS:
            batch = self._next()
            if not batch:
                return
            self._begin(batch)
            task = asyncio.get_running_loop().create_task(self._together(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> list[_Waiting[J]]:
        """Take the next changes whose sessions are not busy."""
        batch, held = list[_Waiting[J]](), deque[_Waiting[J]]()
        share = -(-(len(self._waiting) + self._sent) // CALLS)
        most = min(max(share, FEW), TOGETHER)
        while self._waiting and len(batch) < most:
            one = self._waiting.popleft()
            if one.answer.done():  # its caller was canceled
                continue
            (held if one.at in self._busy else batch).append(one)
        self._waiting.extendleft(reversed(held))
        return batch

    async def _together(self, batch: Sequence[_Waiting[J]]) -> None:
        """Send changes in one call, and those that it could not do again, each alone."""
        again = list[_Waiting[J]]()
        try:
            for one, answer in zip(batch, await self._called([one.job for one in batch]), strict=True):
                if answer is None:
                    again.append(one)
                elif isinstance(answer, Exception):
                    one.fail(answer)
                else:
                    one.settle(answer)
        except Exception as error:
            for one in batch:
                one.fail(error)
        finally:
            self._end(batch, again=again)
        if again:
            each = dict[Address, list[_Waiting[J]]]()
            for one in again:
                each.setdefault(one.at, []).append(one)
            await asyncio.gather(*map(self._sent_again, each.values()))
            self._busy.difference_update(each)
            self._send()

    async def _sent_again(self, changes: Sequence[_Waiting[J]]) -> None:
        """Send changes of one session again, one after the other."""
        for one in changes:
            try:
                one.settle(await self._alone(one.job))
            except Exception as error:
                one.fail(error)
