"""Readers: connections of their own, so that reading never waits for writing.

Each thread of a small pool opens one when it first reads, and all are closed with the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from ...errors import StoreError
from .connection import connect
from .faults import telling

__all__ = ["Readers"]

T = TypeVar("T")

THREADS = 4


class Readers:
    """Runs queries beside the writer, each on a snapshot of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._open = list[apsw.Connection]()
        self._closed = False
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="turnstate-reader")

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a query; all that it reads is of one moment."""
        if self._closed:
            raise StoreError(f"{self._path} is closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, job)

    def close(self) -> None:
        """Finish what was begun, and close the connections."""
        self._closed = True
        self._pool.shutdown(wait=True)
        for db in self._open:
            db.close(True)

    def abandon(self) -> None:
        """Break off what was begun, and close the connections."""
        for db in self._open:
            db.interrupt()
        self.close()

    def _read(self, job: Callable[[apsw.Connection], T]) -> T:
        with telling(self._path):
            db = self._connection()
            db.execute("BEGIN")
            try:
                return job(db)
            finally:  # not by a commit: in a damaged file that may fail, though nothing was written
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self._path, write=False)
            self._open.append(db)
        return db
