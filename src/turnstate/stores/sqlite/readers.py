"""Readers: queries in a few threads, each on a snapshot, so that reading never waits for writing.

A thread is started when a query arrives and all others are busy, so a program that reads now and then has one
thread and one connection. A query is one job: it is handed to a thread and its result is handed back, which
costs more than most queries, so callers put several reads into one job. The first thread also opens the
store, so opening needs no extra thread.

A small query runs in the event loop's thread instead once several have not had to wait, which means that the
file is in memory. After one that read from the disk, or two that waited for something else, the next ones go
to a thread again. In the loop's thread a query waits for no lock, and anything that turns out to be large is
left to a thread before it is read. Such a query never awaits anything, so `run` lets the other tasks of the
loop run now and then.
"""

from __future__ import annotations

import asyncio
import queue
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from ...errors import StoreError
from ...process import Gate, Owner, pause_before_fork
from .connection import LOOK_AGAIN, Connection, connect
from .faults import FAULTS, fault
from .queries import SQL

T = TypeVar("T")
Work = Callable[[], Any]
Query = Callable[[apsw.Connection], T]

THREADS = 4

_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)

QUICK, QUICK_READS = 0.000_5, 8
"""Seconds that a quick query may wait, and how many quick ones allow the next in the loop's thread.

A query does not wait at all if the file is in memory. One slow query among many quick ones may be due to a
busy processor, so up to twice as many as needed are counted, and a slow one takes back half of that.
"""

DISK, QUICK_AFTER_DISK = 0.000_05, 32
"""The shortest wait in seconds that can be a disk's, and how many quick queries allow the next one in the
loop's thread after a query that read from the disk: not all of the file is in memory then."""

LONGEST_TURN = 0.000_25
"""Seconds of queries in the loop's thread after which the other tasks of the loop get a turn.

A sleeping task needs two turns to continue.
"""


class TooMuchToRead(Exception):
    """A query is about to read too much for the loop's thread."""


class Readers:
    """Runs queries in a few threads, and small ones in the event loop's thread."""

    def __init__(self, path: str, *, in_loop: bool = True) -> None:
        self._path, self._in_loop = path, in_loop
        self._here: Connection | None = None  # for queries in the thread of a loop
        self._using, self._quick = threading.Lock(), 0
        self._turn: float | None = None  # when the first query in this iteration of the loop ran
        self._local = threading.local()
        self._open = list[Connection]()
        self._jobs: queue.SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._threads = list[threading.Thread]()
        self._unfinished, self._closed, self._gate = 0, False, threading.Lock()
        self._running, self._is_paused = Gate(), False
        self._owner = Owner(self, path)
        pause_before_fork(self)

    async def run(self, job: Query[T], *, here: Query[T] | None = None) -> T:
        """Run a query in one snapshot; `here` is a variant that may run in the loop's thread instead.

        `here` raises `TooMuchToRead` before it reads too much.
        """
        self._owner.check()
        if here is None or not self._in_loop:
            return await self.do(partial(self._read, job))
        if self._quick >= QUICK_READS and (found := self._read_here(here)) is not None:
            if self._turn is None:
                self._turn = time.perf_counter()
                asyncio.get_running_loop().call_soon(self._end_turn)
            elif time.perf_counter() - self._turn > LONGEST_TURN:
                await asyncio.sleep(0)
                self._end_turn()
            return found[0]
        return await self.do(partial(self._read_small, job))

    async def do(self, work: Callable[[], T]) -> T:
        """Run a function in one of the readers' threads."""
        self._owner.check()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            if self._closed:
                raise StoreError(f"{self._path} is closed; open it again")
            self._unfinished += 1
            self._jobs.put((work, future))  # first, so a new thread need not wait for it
            if self._unfinished > len(self._threads) < THREADS:
                thread = threading.Thread(target=self._run, name="turnstate-reader", daemon=True)
                self._threads.append(thread)
                thread.start()
        return await future

    def adopt(self, db: Connection) -> None:
        """Use a connection that this thread has opened; it is read-only from now on."""
        db.pragma("query_only", True)
        self._local.db = self._kept(db)

    def _kept(self, db: Connection) -> Connection:
        """Keep a connection until `close`; it leaves the WAL as it is, which the writer examines first."""
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._open.append(db)
        return db

    def close(self) -> None:
        """Finish pending queries and close the connections; a child that inherited them leaves them open."""
        if self._owner.is_elsewhere:
            return
        with self._gate:
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        with self._using:
            self._here = None
            for db in self._open:
                db.close(True)
            self._open = []

    def pause(self, deadline: float) -> None:
        """Close the connections for a fork once no query is running; if one still is, leave them open."""
        is_quiet = self._running.shut(deadline)
        left = max(0.0, deadline - time.monotonic())
        self._is_paused = self._using.acquire(timeout=left)
        if is_quiet and self._is_paused:
            self._here, self._local = None, threading.local()
            while self._open:
                self._open.pop().close(True)

    def resume(self) -> None:
        """Let queries run again; each thread reopens its connection."""
        if self._is_paused:
            self._is_paused = False
            self._using.release()
        self._running.open()

    def abandon(self) -> None:
        """Interrupt running queries and close the connections."""
        for db in self._open:
            db.interrupt()
        self.close()

    def _run(self) -> None:
        while (waiting := self._jobs.get()) is not None:
            work, future = waiting
            result, error = None, None
            try:
                if not future.cancelled():
                    with self._running:
                        result = work()
            except BaseException as raised:  # whatever it is, the caller waits for it, and the thread goes on
                error = raised
            with self._gate:
                self._unfinished -= 1
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop was closed, so no one waits for the result
                continue
            finally:
                del work, future, waiting, result, error  # otherwise they would live until the next job
            with self._running:
                self._prepare()

    def _prepare(self) -> None:
        """Open this thread's connection while no query waits for it, and let it read the schema."""
        if getattr(self._local, "db", None) is None and not self._closed:
            with suppress(apsw.Error, StoreError):  # the next query fails in the same way, and reports it
                self._connection().execute(SQL["session"], {"tenant": None, "session": None})
        if self._quick >= QUICK_READS and self._here is None:
            with suppress(apsw.Error, StoreError), self._using:
                self._open_here()

    def _open_here(self) -> None:
        if self._here is None and not self._closed:
            db = self._kept(connect(self._path, write=False))
            db.set_busy_handler(None)  # if the file is locked, a thread waits instead
            db.execute(SQL["session"], {"tenant": None, "session": None})
            self._here = db

    def _read(self, job: Query[T]) -> T:
        try:
            return self._connection().snapshot(job)
        except FAULTS as error:
            raise fault(error, self._path) from error

    def _read_small(self, job: Query[T]) -> T:
        """Run a small query in a thread, and note whether it was quick."""
        start = _waited()
        try:
            return self._read(job)
        finally:
            self._note_speed(_waited() - start)

    def _read_here(self, job: Query[T]) -> tuple[T] | None:
        """Run a small query in the loop's thread; return None if a thread must run it or report an error."""
        if not self._using.acquire(blocking=False):
            return None
        start, db = _waited(), self._here
        try:
            if db is None or db.hold.drops_locks or not db.hold.has_kept_locks():
                return None  # a thread waits for further locks
            db.check_files(within=LOOK_AGAIN)
            found = db.read_once(job)
            return (found,) if db.hold.has_kept_locks() else None
        except (*FAULTS, TooMuchToRead):
            return None
        except BaseException:  # a signal may arrive anywhere, and must not leave a transaction open
            if db is not None and db.in_transaction:
                db.execute("ROLLBACK")
            raise
        finally:
            self._using.release()
            self._note_speed(_waited() - start)

    def _end_turn(self) -> None:
        self._turn = None

    def _note_speed(self, waited: float) -> None:
        """Note how many seconds a query of this thread waited, and whether for the disk."""
        if waited > DISK and self._has_used_disk():
            self._quick = QUICK_READS - QUICK_AFTER_DISK
        elif waited < QUICK:
            self._quick = min(self._quick + 1, 2 * QUICK_READS)
        elif self._quick > 0:
            self._quick = max(0, self._quick - QUICK_READS)

    def _has_used_disk(self) -> bool:
        """Return True if this thread has read from a disk since it was asked last."""
        before, self._local.blocks = getattr(self._local, "blocks", None), _blocks_read()
        return before is not None and before != self._local.blocks

    def _connection(self) -> Connection:
        db: Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._kept(connect(self._path, write=False))
        return db


def _waited() -> float:
    """Return the seconds that this thread has spent waiting since an arbitrary point in time."""
    return time.perf_counter() - time.thread_time()


def _blocks_read() -> int:
    """Return how many blocks this thread has read from disks; only Linux counts them."""
    return resource.getrusage(_THREAD).ru_inblock if _THREAD is not None else 0


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # canceled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
