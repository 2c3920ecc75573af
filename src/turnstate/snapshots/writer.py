"""Writes the snapshots of an open session: after each turn and round of tools, not too often, and at the end.

A writer belongs to one epoch of a session. A reset removes the snapshots of the epoch that it ends. A
snapshot that is taken before a reset and written after it is withdrawn, so that an ended conversation does
not come back.

Any write makes the last snapshot stale, but only the end of a turn or of a round of tools triggers the next
one. What no snapshot holds when the process ends, such as a prompt that waits for its answer or calls that
are running, is written then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from ..context.snapshot import ContextSnapshot
from ..errors import EpochEnded, NotFound, TurnstateError
from ..message import Message
from ..value import check_number
from .snapshots import Snapshots

EVERY = 5.0
"""Seconds between two snapshots of one session under load."""


class SnapshotWriter:
    """Writes the snapshots of one session; `take` and `check` raise `EpochEnded` after a reset.

    ``unsaved`` holds the writer of each session whose last write is in no snapshot, so that it is written at
    the end even if no handle of the session is left.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        session: str,
        take: Callable[[], Awaitable[ContextSnapshot]],
        check: Callable[[], Awaitable[object]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        unsaved: dict[str, SnapshotWriter],
        *,
        every: float = EVERY,
    ) -> None:
        self._snapshots, self._session, self._spawn = snapshots, session, spawn
        self._take, self._check, self._unsaved = take, check, unsaved
        self._pace = SnapshotPace(every)
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._over = False
        self.failure = ""

    def changed(self) -> None:
        """Record that the session was written to."""
        self._unsaved[self._session] = self

    def appended(self, message: Message) -> None:
        """Schedule a snapshot if a turn or a round of tools ends with this message."""
        if message.role == "tool" or (message.role == "assistant" and not message.tool_calls):
            self._pace.changed()
            if self._task is None or self._task.done():
                self._task = self._spawn(self._write_when_due())

    async def restart(self) -> None:
        """Remove the snapshots of a conversation that ended, so that none of them comes back."""
        await asyncio.to_thread(self._snapshots.erase, self._session)
        self._pace.changed()
        await self._write()

    async def stop(self) -> None:
        """Write no more; return when a write in progress is on the disk."""
        self._over = True
        async with self._writing:
            pass

    async def finish(self) -> None:
        """Write what no snapshot has yet."""
        await self._write()

    async def _write_when_due(self) -> None:
        while (seconds := self._pace.wait()) is not None:
            await asyncio.sleep(seconds)
            await self._write()

    async def _write(self) -> None:
        """Write a snapshot; a failure becomes a notice for the user and never stops the conversation."""
        self._pace.begin()
        try:
            async with self._writing:
                if not self._over:
                    self._unsaved.pop(self._session, None)
                    await self._write_checked()
        except (EpochEnded, NotFound):
            self._over, self.failure = True, ""
        except TurnstateError as error:
            self.failure = str(error)
            self._unsaved.setdefault(self._session, self)
        except asyncio.CancelledError:
            self._pace.changed()
            self._unsaved.setdefault(self._session, self)
            raise
        else:
            self.failure = ""

    async def _write_checked(self) -> None:
        taken = await self._take()
        work = asyncio.to_thread(self._snapshots.write, self._session, taken)
        written = await _completed(asyncio.ensure_future(work))
        try:
            await self._check()
        except (EpochEnded, NotFound):
            await asyncio.to_thread(self._snapshots.withdraw, self._session, written)
            raise


async def _completed(writing: asyncio.Future[Path]) -> Path:
    """Wait for a thread, which cannot be canceled, even if the task is canceled."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


class SnapshotPace:
    """Limits snapshots to one per `every` seconds, and remembers whether changes are pending."""

    def __init__(self, every: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        check_number("every", every, least=0, most=86_400)
        self._every = every
        self._clock = clock
        self._begun: float | None = None
        self._pending = False

    @property
    def pending(self) -> bool:
        """True if something changed since the last snapshot was begun."""
        return self._pending

    def changed(self) -> None:
        """Record that there is something to write."""
        self._pending = True

    def due(self) -> bool:
        """Return True if a snapshot should be written now."""
        return self._pending and self._left() <= 0

    def wait(self) -> float | None:
        """Return the seconds until the next snapshot is due, or None if nothing changed."""
        return max(0.0, self._left()) if self._pending else None

    def begin(self) -> None:
        """Begin a snapshot; changes while it is written count for the next one."""
        self._pending = False
        self._begun = self._clock()

    def _left(self) -> float:
        if self._begun is None:
            return 0.0
        passed = self._clock() - self._begun
        return self._every - passed if passed >= 0 else 0.0  # a clock that goes backwards delays nothing
