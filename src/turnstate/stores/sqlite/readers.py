"""Readers: queries in a few threads, each on a snapshot, so that reading never waits for writing.

A thread is started when a query comes and all others are at work, so one that reads now and then has one
thread and one connection. A query is one job: it is handed to a thread and its result is handed back, which
costs more than most queries. Whoever reads several things puts them into one job. The first thread also opens
the store, so that opening needs no other.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from ...errors import StoreError
from .connection import connect
from .faults import FAULTS, fault
from .queries import SQL

__all__ = ["Readers"]

T = TypeVar("T")
Work = Callable[[], Any]

THREADS = 4


class Readers:
    """Runs queries in a few threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._open = list[apsw.Connection]()
        self._jobs: queue.SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._threads = list[threading.Thread]()
        self._unfinished, self._closed, self._gate = 0, False, threading.Lock()

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a query in one snapshot."""
        return await self.do(partial(self._read, job))

    async def do(self, work: Callable[[], T]) -> T:
        """Do something in a thread of the readers."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            if self._closed:
                raise StoreError(f"{self._path} is closed; open it again")
            self._unfinished += 1
            if self._unfinished > len(self._threads) < THREADS:
                thread = threading.Thread(target=self._run, name="turnstate-reader", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put((work, future))
        return await future

    def close(self) -> None:
        """Finish what was begun, and close the connections."""
        with self._gate:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        for db in self._open:
            db.close(True)
        self._open = []

    def abandon(self) -> None:
        """Interrupt what was begun, and close the connections."""
        for db in self._open:
            db.interrupt()
        self.close()

    def _run(self) -> None:
        while (waiting := self._jobs.get()) is not None:
            work, future = waiting
            result, error = None, None
            try:
                if not future.cancelled():
                    result = work()
            except BaseException as raised:
                error = raised
            with self._gate:
                self._unfinished -= 1
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop was closed: no one waits any more
                continue
            finally:
                del work, future, waiting, result, error  # or they would live until the next job
            self._prepare()

    def _prepare(self) -> None:
        """Open this thread's connection while no query waits, and let it read the schema."""
        if getattr(self._local, "db", None) is None and not self._closed:
            with suppress(apsw.Error, StoreError):  # the next query meets the same, and reports it
                self._connection().execute(SQL["session_at"], {"key": None})

    def _read(self, job: Callable[[apsw.Connection], T]) -> T:
        try:
            db = self._connection()
            db.execute("BEGIN")
            try:
                return job(db)
            finally:  # a commit may fail in a damaged file, though nothing was written
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except FAULTS as error:
            raise fault(error, self._path) from error

    def _connection(self) -> apsw.Connection:
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self._path, write=False)
            self._open.append(db)
        return db


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
