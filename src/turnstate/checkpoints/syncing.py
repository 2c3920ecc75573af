"""Many files on their way to the disk at once: it writes a crowd in hardly more time than a single one.

A descriptor that is handed over is closed when its file is on the disk. Leaving the block without an
error waits for all of them; an error of any is raised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

__all__ = ["Syncing"]

_TOGETHER = 8
_OPEN = 64  # descriptors; a process has at least some hundred


class Syncing:
    """Descriptors that wait for the disk."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync
        self._waiting = list[int]()
        self._pool = ThreadPoolExecutor(_TOGETHER)

    def add(self, descriptor: int) -> None:
        """Hand an open file over."""
        self._waiting.append(descriptor)
        if len(self._waiting) >= _OPEN:
            self._settle()

    def _settle(self) -> None:
        try:
            for _ in self._pool.map(self._sync, self._waiting):
                pass
        finally:
            self._close()

    def _close(self) -> None:
        while self._waiting:
            os.close(self._waiting.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._settle()
        finally:
            self._pool.shutdown()
            self._close()
