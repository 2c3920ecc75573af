"""Keeping snapshots: after each turn and round of tools, not too often, and once more at the end.

A keeper belongs to one epoch of a session. A reset removes the snapshots of the epoch that it ends; one that
was taken before and is written after is withdrawn, so that an ended conversation does not come back.

Any write makes the last snapshot stale; only the end of a turn or of a round of tools has the next one
written. What no snapshot holds yet when the process ends, such as a prompt that waits for its answer or calls
that are under way, is written then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..context.snapshot import ContextSnapshot
from ..errors import EpochEnded, NotFound, TurnstateError
from ..message import Message
from ..snapshots import SnapshotPace, Snapshots
from .background import Background

__all__ = ["EVERY", "Keeper"]

EVERY = 5.0
"""Seconds between two snapshots of one session under load."""


class Keeper:
    """Writes the snapshots of one session; `take` and `check` raise `EpochEnded` after a reset.

    ``unsaved`` holds a keeper of each session whose last write is in no snapshot, so that it is there at the
    end even if nobody has a handle of the session any more.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        session: str,
        take: Callable[[], Awaitable[ContextSnapshot]],
        check: Callable[[], Awaitable[object]],
        background: Background,
        unsaved: dict[str, Keeper],
        *,
        every: float = EVERY,
    ) -> None:
        self._snapshots, self._session, self._background = snapshots, session, background
        self._take, self._check, self._unsaved = take, check, unsaved
        self._pace = SnapshotPace(every)
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._over = False
        self.failure = ""

    def changed(self) -> None:
        """Take note of a write to the session."""
        self._unsaved[self._session] = self

    def said(self, message: Message) -> None:
        """Take note of a message: a turn or a round of tools may end with it."""
        if message.role == "tool" or (message.role == "assistant" and not message.tool_calls):
            self._pace.changed()
            if self._task is None or self._task.done():
                self._task = self._background.spawn(self._write_when_due())

    async def begin_anew(self) -> None:
        """Remove the snapshots of a conversation that ended, so that none of them comes back."""
        await asyncio.to_thread(self._snapshots.erase, self._session)
        self._pace.changed()
        await self._write()

    async def stop(self) -> None:
        """Write no more; return when what was being written is on the disk."""
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
        """Write one; a disk that refuses is told to the user and never stops the conversation."""
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
    """Wait for a thread that cannot be broken off, also if the task is cancelled."""
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise
