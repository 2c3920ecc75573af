"""Keeping snapshots: after each turn and round of tools, not too often, and once more at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..context.snapshot import ContextSnapshot
from ..errors import HoldfastError
from ..message import Message
from ..snapshots import SnapshotPace, Snapshots
from .background import Background

__all__ = ["EVERY", "Keeper"]

EVERY = 5.0
"""Seconds between two snapshots of one session under load."""


class Keeper:
    """Writes the snapshots of one session."""

    def __init__(
        self,
        snapshots: Snapshots,
        session: str,
        take: Callable[[], Awaitable[ContextSnapshot]],
        background: Background,
        *,
        every: float = EVERY,
    ) -> None:
        self._snapshots, self._session, self._take, self._background = snapshots, session, take, background
        self._pace = SnapshotPace(every)
        self._task: asyncio.Task[None] | None = None
        self.failure = ""

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

    async def finish(self) -> None:
        """Write what no snapshot has yet."""
        if self._pace.pending:
            await self._write()

    async def _write_when_due(self) -> None:
        while (seconds := self._pace.wait()) is not None:
            await asyncio.sleep(seconds)
            await self._write()

    async def _write(self) -> None:
        """Write one; a disk that refuses is told to the user and never stops the conversation."""
        self._pace.begin()
        try:
            taken = await self._take()
            await asyncio.to_thread(self._snapshots.write, self._session, taken)
        except HoldfastError as error:
            self.failure = str(error)
        except asyncio.CancelledError:
            self._pace.changed()
            raise
        else:
            self.failure = ""
