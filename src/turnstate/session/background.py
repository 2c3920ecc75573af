"""Work in the background, which ends with its owner and whose errors are not lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Background"]

_log = logging.getLogger("turnstate.session")


class Background:
    """Tasks that nobody waits for until the end."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[None]]()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Break off what is under way, and wait until it is."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.warning("work in the background failed: %s: %s", type(error).__name__, error)
