"""The writer: one thread with one connection, and one transaction for all that waits.

    append ─┐
    append ─┼─► queue ─► BEGIN IMMEDIATE · job · job · job · COMMIT ─► all are answered
    append ─┘                            (one fsync)

A job is a function of the connection. Jobs that the tasks of an event loop submit in one iteration are
handed over together at its end, since two threads that alternate job by job are slower than one. A job that
is refused affects no other: nearly all are refused before they have written anything; if one has written,
the batch is rolled back and run again with a savepoint for each job. No job is answered before the commit
has returned: acknowledged means durable. After an I/O error the connection is opened again, since its cache
may be wrong.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ...errors import StoreError, TurnstateError
from .connection import connect
from .faults import UNREADABLE, UNUSABLE, fault, unusable

__all__ = ["BATCH", "Writer"]

T = TypeVar("T")
Job = Callable[[apsw.Connection], Any]

BATCH = 64
"""Jobs in one transaction: enough to make the fsync cheap, few enough that none waits long."""


class _Waiting:
    """A job, the future of its caller, and its outcome."""

    __slots__ = ("alone", "error", "future", "job", "loop", "result")

    def __init__(self, job: Job, future: asyncio.Future[Any], *, alone: bool) -> None:
        self.job, self.future, self.loop, self.alone = job, future, future.get_loop(), alone
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():  # cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs jobs in order, many to a transaction."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._gathered = dict[asyncio.AbstractEventLoop, list[_Waiting]]()
        self._closing, self._gate = False, threading.Lock()
        self._db: apsw.Connection | None = connect(path, write=True)
        self._thread = threading.Thread(target=self._run, name="turnstate-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job, and return once it is durable."""
        return await self._submit(job, alone=False)

    async def run_alone(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job that cannot be part of a transaction."""
        return await self._submit(job, alone=True)

    def close(self) -> None:
        """Finish the queued jobs, and end the thread."""
        with self._gate:
            if not self._closing:
                self._closing = True
                self._queue.put(None)
        self._thread.join()

    async def _submit(self, job: Callable[[apsw.Connection], T], *, alone: bool) -> T:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, loop.create_future(), alone=alone)
        if loop not in self._gathered:
            self._gathered[loop] = []
            loop.call_soon(self._hand_over, loop)
        self._gathered[loop].append(waiting)
        result: T = await waiting.future
        return result

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Queue the jobs that the tasks of a loop submitted in its last iteration."""
        gathered = self._gathered.pop(loop)
        with self._gate:  # nothing is queued after the end marker
            if not self._closing:
                for waiting in gathered:
                    self._queue.put(waiting)
                return
        for waiting in gathered:
            waiting.error = StoreError(f"{self._path} is closed; open it again")
            waiting.settle()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                self._write(batch)
                _answer(batch)
        self._disconnect()

    def _next_batch(self) -> tuple[list[_Waiting], bool]:
        """Wait for a job, and take all that are queued after it; the end marker ends the thread."""
        batch = list[_Waiting]()
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH or item.alone:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        return batch, item is not None

    def _write(self, batch: list[_Waiting]) -> None:
        together = [waiting for waiting in batch if not waiting.alone]
        if together:
            self._guarded(_transact, together)
        if alone := batch[len(together) :]:
            self._guarded(_run_alone, alone)

    def _guarded(
        self, work: Callable[[apsw.Connection, list[_Waiting]], None], batch: list[_Waiting]
    ) -> None:
        """Do the work of a batch; if it fails, every job in it gets the error."""
        try:
            work(self._connected(), batch)
        except Exception as error:
            self._disconnect()
            if isinstance(error, UNREADABLE) and len(batch) > 1:
                self._one_by_one(work, batch)
                return
            translated = _translated(error, self._path)
            for waiting in batch:
                waiting.error = waiting.error or translated

    def _one_by_one(
        self, work: Callable[[apsw.Connection, list[_Waiting]], None], batch: list[_Waiting]
    ) -> None:
        """Do the work of a batch again, each job alone, since a damaged page concerns one session."""
        for waiting in batch:
            waiting.result = waiting.error = None
            self._guarded(work, [waiting])

    def _connected(self) -> apsw.Connection:
        if self._db is None:
            self._db = connect(self._path, write=True)
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close(True)


def _transact(db: apsw.Connection, batch: list[_Waiting]) -> None:
    """Run a batch; savepoints are the second choice, since FTS5 flushes its pending words at each."""
    db.execute("BEGIN IMMEDIATE")
    if not all(_attempt(db, waiting) for waiting in batch):
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        for waiting in batch:
            _attempt_in_savepoint(db, waiting)
    db.execute("COMMIT")


def _attempt(db: apsw.Connection, waiting: _Waiting) -> bool:
    """Run one job; return False if it was refused after it had written. Other errors end the batch."""
    before = db.total_changes()
    waiting.result = waiting.error = None
    try:
        waiting.result = waiting.job(db)
    except (TurnstateError, *UNUSABLE) as error:
        waiting.error = error if isinstance(error, TurnstateError) else unusable(error)
        return db.total_changes() == before
    return True


def _attempt_in_savepoint(db: apsw.Connection, waiting: _Waiting) -> None:
    db.execute("SAVEPOINT job")
    if not _attempt(db, waiting):
        db.execute("ROLLBACK TO job")
    db.execute("RELEASE job")


def _translated(error: Exception, path: str) -> Exception:
    """Return the error that a user sees."""
    return fault(error, path) if isinstance(error, apsw.Error | UnicodeDecodeError) else error


def _run_alone(db: apsw.Connection, batch: list[_Waiting]) -> None:
    for waiting in batch:
        waiting.result = waiting.job(db)


def _answer(batch: list[_Waiting]) -> None:
    """Answer all jobs, waking each loop once."""
    loops = dict[asyncio.AbstractEventLoop, list[_Waiting]]()
    for waiting in batch:
        loops.setdefault(waiting.loop, []).append(waiting)
    for loop, those in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, those)
        except RuntimeError:  # the loop was closed: no one waits any more
            continue


def _settle(batch: list[_Waiting]) -> None:
    for waiting in batch:
        waiting.settle()
