"""Batching of changes that are sent to a server: simultaneous changes share one call.

    alone       answer ──► one call                    ──► an answer
    together    answer ──┐
                answer ──┼► one call for all of them   ──► an answer or an error for each
                answer ──┘

At most two calls are in flight; changes that arrive meanwhile are sent with the next call. Changes to one
session are sent in order: while some of them are in flight, the others wait. The store makes the calls. If a
shared call returns None for a change that it could not apply, that change is sent again alone, as long as
its caller waits for it: `close` would otherwise wait for a server that may be gone. An exception
from a call is raised to all callers that share it; canceling one caller does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Generic, TypeVar

from ..errors import TurnstateError
from .values import Address, Change

TOGETHER = 64
"""Maximum number of changes in one call."""

CALLS = 2
"""Maximum number of calls in flight: while one is being written to disk, the next is made."""

FEW = 16
"""Up to this many changes are not worth two calls. Of more, half are sent at a time: while the server works
on one half, the callers of the other half get their answers and make their next changes."""

LARGE = 32_768
"""A change with more bytes than this is sent alone, since it would keep the others waiting."""

J = TypeVar("J")


def is_plain(change: Change) -> bool:
    """Return True if a change only appends, and is small enough to share a call."""
    branches = change.fork is not None or change.select is not None
    ends = change.next_epoch or change.end is not None
    large = sum(len(record.body) for record in change.records) > LARGE
    return not (branches or ends or change.parcels or large)


class _Waiting(Generic[J]):
    """A change to a session as it is sent, and the future of its answer."""

    def __init__(self, at: Address, job: J) -> None:
        self.at, self.job = at, job
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(self, answer: Any) -> None:
        if not self.answer.done():  # otherwise its caller was canceled
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy(error) if isinstance(error, TurnstateError) else error)


class Batches(Generic[J]):
    """Sends changes in as few calls as possible."""

    def __init__(
        self,
        alone: Callable[[J], Awaitable[Any]],
        together: Callable[[Sequence[J]], Awaitable[Sequence[Any]]],
    ) -> None:
        self._alone, self._called = alone, together
        self._waiting = deque[_Waiting[J]]()
        self._calls = self._sent = 0  # calls in flight, and the changes in them
        self._busy = set[Address]()  # sessions with changes in flight
        self._pending = set[asyncio.Future[Any]]()  # tasks of shared calls, and answers of lone calls
        self._gathering = False
        self._several = False  # the last call had several changes, so several callers may be about to append

    async def answer(self, at: Address, job: J) -> Any:
        """Send a change to a session and return the answer."""
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
        while self._pending or self._waiting:
            if self._pending:
                await asyncio.wait(self._pending)
            else:
                await asyncio.sleep(0)  # a caller is gathering

    async def _gather(self, one: _Waiting[J]) -> None:
        """Let all tasks that are ready run, so that their appends are sent together."""
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
        """Send the only waiting change in the task of its caller."""
        self._begin([one])
        self._pending.add(one.answer)
        try:
            return await self._alone(one.job)
        finally:  # also if the caller is canceled: its session would stay busy for ever
            self._pending.discard(one.answer)
            one.settle(None)  # for `close`
            self._end([one])

    def _begin(self, batch: Sequence[_Waiting[J]]) -> None:
        self._calls += 1
        self._sent += len(batch)
        self._several = len(batch) > 1
        self._busy.update(one.at for one in batch)

    def _end(self, batch: Sequence[_Waiting[J]], *, again: Sequence[_Waiting[J]] = ()) -> None:
        """Mark a call as finished; sessions whose changes are sent again stay busy."""
        self._calls -= 1
        self._sent -= len(batch)
        self._busy.difference_update(one.at for one in batch)
        self._busy.update(one.at for one in again)
        self._send()

    def _send(self) -> None:
        """Send waiting changes while a call is free."""
        while self._waiting and self._calls < CALLS:
            batch = self._next()
            if not batch:
                return
            self._begin(batch)
            task = asyncio.get_running_loop().create_task(self._together(batch))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

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
        """Send changes in one call, then send each change that it could not apply again, alone."""
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
        """Send changes to one session again, one after the other; those of canceled callers no longer."""
        for one in changes:
            if one.answer.done():
                continue
            sending = asyncio.ensure_future(self._alone(one.job))
            one.answer.add_done_callback(partial(_cancel, sending))
            try:
                one.settle(await sending)
            except asyncio.CancelledError:
                if not one.answer.cancelled():  # the call itself was canceled, not its caller
                    raise
            except Exception as error:
                one.fail(error)


def _cancel(sending: asyncio.Future[Any], _: object) -> None:
    sending.cancel()
