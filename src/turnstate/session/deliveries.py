"""The background task of a manager that opened a memory engine: ends idle sessions, and delivers.

It does what `turnstate worker` does, for programs that are one process. What is not delivered when the
program ends is in the outbox, and goes on when the store is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..errors import TurnstateError
from ..memory.port import MemoryEngine

__all__ = ["INTERVAL", "Deliveries"]

_log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks into the outbox."""

ENDING = 5.0
"""Seconds for a delivery to end when the manager is closed; then it is broken off, and repeated later."""


class Deliveries:
    """Delivers until it is closed, and closes the engine then."""

    def __init__(self, engine: MemoryEngine, deliver: Callable[[], Awaitable[object]]) -> None:
        self._engine, self._deliver = engine, deliver
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish the delivery that is under way, and close the engine."""
        self._stop.set()
        try:
            async with asyncio.timeout(ENDING):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=ENDING)
        await self._engine.close()

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                await self._deliver()
            except TurnstateError as error:
                _log.warning("the outbox cannot be delivered, trying again in %g s: %s", INTERVAL, error)
            try:
                async with asyncio.timeout(INTERVAL):
                    await self._stop.wait()
            except TimeoutError:
                continue
