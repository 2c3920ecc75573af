"""The writer: one thread with one connection, and one transaction for all waiting jobs.

    append ─┐
    append ─┼─► queue ─► BEGIN IMMEDIATE · job · job · job · COMMIT ─► all are answered
    append ─┘                            (one fsync)

A job is a change to a session, or a function that takes the connection. Jobs that the tasks of an event loop
submit in one iteration are handed over together at its end, since two threads that alternate job by job are
slower than one. If all jobs of a batch only append, they also share statements (`changes.commit_together`).

A refused job affects no other. No job is answered before the commit has returned: acknowledged means durable.
After an I/O error the connection is reopened, since its cache may be wrong.

Small appends are committed in the event loop's thread: waking another thread twice takes as long as the disk
does, and two threads that both need the GIL are slower than one. If the previous append was alone, the next
one does not even wait for others in its iteration. This happens only while the disk is fast, so a disk that
stalls blocks the loop for a single commit, and never while another process holds the lock. The work after a
commit is left to the writer's thread: it checkpoints the WAL, and continues the search index once no job has
arrived for a moment.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from ...errors import StoreError, StoreUnavailable, TurnstateError
from ...process import Owner, pause_before_fork
from ..values import Change, Receipt
from . import changes
from .connection import LOOK_AGAIN, WAL_PAGES, Connection, connect, patience
from .faults import FAULTS, UNREADABLE, UNUSABLE, fault
from .search import index_some
from .wal import grow_log, report_lost_commits, settle_log

T = TypeVar("T")
Job = Callable[[Connection], Any]

BATCH = 64
"""Maximum jobs in a transaction: enough to make the fsync cheap, few enough to commit in a loop's thread."""

GROWN_AFTER = 8
"""Commits after which the WAL gets its final size: a process that has written this often will write more."""

IDLE = 0.05
"""Seconds without a job after which the search index is continued; a busy client pauses for less time."""

QUICK, QUICK_JOB, QUICK_COMMITS = 0.002, 0.000_05, 8
"""Seconds that a quick commit may take, seconds that each of its jobs adds, and how many quick commits in a
row allow the next one in the loop's thread."""

SMALL, SMALL_BATCH = 20_000, 128_000
"""Bytes of an append, and of a batch, that fit in the loop's thread: more would take too long on any disk."""


class _Queued:
    """A change or a job, its outcome, and the future of its caller if it is left to the thread.

    Gathered jobs are handed over at the start of the loop's next iteration, before their callers continue.
    """

    __slots__ = ("alone", "change", "error", "future", "is_done", "is_plain", "job", "loop", "result", "size")

    def __init__(self, job: Job | None, *, change: Change | None = None, alone: bool = False) -> None:
        self.job, self.change, self.alone, self.loop = job, change, alone, asyncio.get_running_loop()
        self.is_plain = change is not None and changes.is_plain(change)
        self.size = sum([len(record.body) for record in change.records]) if change is not None else 0
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.future: asyncio.Future[None] | None = None

    def run(self, db: Connection) -> Any:
        if self.change is not None:
            return changes.commit(db, self.change)
        return self.job(db) if self.job is not None else None

    def __await__(self) -> Generator[Any, None, Any]:
        yield
        if not self.is_done:
            self.future = self.loop.create_future()
            yield from self.future
        if self.error is not None:
            raise self.error
        return self.result

    def settle(self) -> None:
        self.is_done = True
        if self.future is not None and not self.future.done():  # else its caller was canceled
            self.future.set_result(None)


class Writer:
    """Runs jobs in order, many in one transaction."""

    def __init__(self, path: str, db: Connection | None = None, *, in_loop: bool = True) -> None:
        self._path, self.in_loop = path, in_loop
        self._queue: queue.SimpleQueue[list[_Queued] | None] = queue.SimpleQueue()
        self._taken = deque[_Queued]()  # taken from the queue, but not yet part of a batch
        self._known = changes.KnownSessions()
        self._gathered = dict[asyncio.AbstractEventLoop, list[_Queued]]()
        self._closing, self._gate = False, threading.Lock()
        self._using = threading.Lock()  # held while the connection is in use
        self._queued = 0  # jobs that were queued and are not done
        self._quick, self._latest = 0, 0.0  # quick commits in a row; time of the last one in a loop's thread
        self._is_alone = False  # the last append was the only one in an iteration of its loop
        self._is_behind = True  # the search index may lag
        self._batches, self._is_grown = 0, False
        self._has_examined = False  # the WAL, for lost commits
        self._is_settled = False  # the WAL, since this connection was opened
        self._may_wait = True
        self._db = self._adopted(db) if db is not None else None  # otherwise the first job opens it
        self._thread = threading.Thread(target=self._run, name="turnstate-writer", daemon=True)
        self._is_started = self._is_paused = self._is_abandoned = False
        self._owner = Owner(self, path)
        pause_before_fork(self)

    def commit(self, change: Change) -> Awaitable[Receipt]:
        """Apply a change; awaiting the result waits until it is durable."""
        self._owner.check()
        waiting = _Queued(None, change=change)
        if self._is_alone and waiting.loop not in self._gathered:
            self._is_alone = False  # for appends that arrive before this caller continues
            if self._committed_here([waiting]):
                waiting.settle()
                return self._answered(waiting)
        return self._submitted(waiting)

    def run(self, job: Callable[[Connection], T]) -> Awaitable[T]:
        """Run a job; awaiting the result waits until it is durable."""
        self._owner.check()
        return self._submitted(_Queued(job))

    def run_alone(self, job: Callable[[Connection], T]) -> Awaitable[T]:
        """Run a job that cannot be part of a transaction."""
        self._owner.check()
        return self._submitted(_Queued(job, alone=True))

    def start(self) -> None:
        """Start the thread, as the first job would; without a job it continues the search index."""
        if self._owner.is_elsewhere:
            return
        with self._gate:
            if not self._closing:
                self._ensure_started()

    def close(self) -> None:
        """Finish the queued jobs, and end the thread; a child that inherited them does nothing."""
        if self._owner.is_elsewhere:
            return
        with self._gate:
            is_last, self._closing = not self._closing, True
            if is_last:
                self._queue.put(None)
        if self._is_started:
            self._thread.join()
        elif is_last:
            self._run()  # there was no job, so only the thread's last steps are left

    def abandon(self) -> None:
        """Open the file no more, since it is not that of the store; what is queued fails."""
        self._is_abandoned = True

    def pause(self, deadline: float) -> None:
        """Close the connection for a fork once it is not in use; if it still is, leave it open."""
        self._is_paused = self._using.acquire(timeout=max(0.0, deadline - time.monotonic()))
        if self._is_paused and self._db is not None:
            # The WAL stays as it is: a checkpoint would take long, and the WAL may not have been examined.
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._disconnect()

    def resume(self) -> None:
        """Let jobs run again; the next one opens the connection."""
        if self._is_paused:
            self._is_paused = False
            self._using.release()

    def _ensure_started(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()

    async def _answered(self, waiting: _Queued) -> Any:
        """Return the outcome of a finished append after the other tasks of the loop have had a turn."""
        try:
            return await waiting
        finally:
            self._is_alone = True

    def _submitted(self, waiting: _Queued) -> _Queued:
        loop = waiting.loop
        if (gathered := self._gathered.get(loop)) is None:
            gathered = self._gathered[loop] = []
            loop.call_soon(self._hand_over, loop)
        gathered.append(waiting)
        return waiting

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit or queue the jobs that the tasks of a loop submitted in its last iteration."""
        gathered = self._gathered.pop(loop)
        batch, rest = gathered[:BATCH], gathered[BATCH:]
        if self._committed_here(batch):
            self._is_alone = len(gathered) == 1
            _settle(batch)
            if rest:  # other tasks get a turn first
                self._gathered[loop] = rest
                loop.call_soon(self._hand_over, loop)
            return
        self._is_alone = False
        with self._gate:  # nothing is queued after the end marker
            if not self._closing:
                self._ensure_started()
                self._queued += len(gathered)
                self._queue.put(gathered)
                return
        for waiting in gathered:
            waiting.error = StoreError(f"{self._path} is closed; open it again")
            waiting.settle()

    def _committed_here(self, batch: list[_Queued]) -> bool:
        """Commit small appends in the loop's thread; return False and do nothing if that might be slow."""
        if self._quick < QUICK_COMMITS or not self.in_loop or not _are_small(batch):
            return False
        if not self._using.acquire(blocking=False):
            return False
        try:
            # What was queued comes first, and only the thread settles a WAL: that rewrites all of it.
            if self._queued or self._closing or not self._is_settled:
                return False
            if (db := self._db) is None or not self._begun_at_once(db):
                return False
            start = time.perf_counter()
            self._guarded(self._transact, batch)
            self._note_speed(time.perf_counter() - start, len(batch))
            self._batches, self._latest = self._batches + 1, time.monotonic()
        # A signal may interrupt a loop's thread anywhere. The next job must not find half a transaction, nor
        # places of sessions that were not committed: both go with the connection.
        except (
            BaseException
        ):  # a signal, too: whatever state the connection is in, the next job gets a new one
            self._disconnect()
            raise
        finally:
            self._using.release()
        if not self._is_behind or self._has_upkeep:
            self._is_behind = True
            self._queue.put([])  # wake the thread
        return True

    def _begun_at_once(self, db: Connection) -> bool:
        """Begin a transaction without waiting; return False if that fails, so that the thread does it."""
        self._may_wait = False  # for the busy handler: the loop must not sleep until another process is done
        try:
            db.begin_write()
            db.execute("BEGIN IMMEDIATE")
        except (apsw.Error, OSError):
            with suppress(apsw.Error, OSError):
                db.end_write()
            return False
        finally:
            self._may_wait = True
        return True

    def _note_speed(self, seconds: float, jobs: int) -> None:
        is_quick = seconds < QUICK + jobs * QUICK_JOB
        self._quick = min(self._quick + 1, QUICK_COMMITS) if is_quick else 0

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                self._commit(batch)
                _answer(batch)
            if self._has_upkeep:
                with self._using:
                    self._keep_up()
        with self._using:
            # Closing the last connection removes the WAL, and with it the evidence of what it lost.
            with suppress(apsw.Error, OSError, StoreError):
                self._examine(self._connected())
            self._disconnect()

    def _examine(self, db: Connection) -> None:
        """Record what a damaged WAL lost before the first write overwrites it or a close removes it.

        This is not part of opening the store, since the time it takes grows with the WAL.
        """
        if not self._has_examined:
            report_lost_commits(db, self._path)
            self._has_examined = True

    def _prepared(self) -> Connection:
        """Return a connection for jobs.

        Whatever failed before it was opened, the frames of the WAL are on the disk. That is not needed to
        close it, since a checkpoint syncs what it copies, nor for the search index, which promises nothing.
        """
        self._examine(db := self._connected())
        if not self._is_settled:
            settle_log(db, self._path)
            self._is_settled = True
        return db

    def _commit(self, batch: list[_Queued]) -> None:
        with self._using:
            start = time.perf_counter()
            self._write(batch)
            self._note_speed(time.perf_counter() - start, len(batch))
            self._batches += 1
        with self._gate:
            self._queued -= len(batch)

    @property
    def _has_upkeep(self) -> bool:
        is_long = self._db is not None and self._db.pages >= WAL_PAGES
        return is_long or (not self._is_grown and self._batches >= GROWN_AFTER)

    def _keep_up(self) -> None:
        """Checkpoint a long WAL, or grow it to its final size if more writes are expected."""
        with suppress(apsw.Error, OSError):  # the next commit fails in the same way, and reports it
            db = self._connected()
            if db.pages >= WAL_PAGES:
                # First, or a checkpoint that a reader prevents would be tried in a loop, without a commit.
                db.pages = 0
                db.checkpoint()
            elif not self._is_grown:
                self._is_grown = True
                grow_log(db, self._path)

    def _next_batch(self) -> tuple[list[_Queued], bool]:
        """Wait for a job and take all that are queued after it; the end marker ends the thread."""
        taken, more = self._taken, True
        while more and len(taken) < BATCH:
            try:
                some = self._queue.get_nowait() if taken else self._next_jobs()
            except queue.Empty:
                break
            if some is None:
                self._queue.put(None)  # for the next call, when nothing is left
                more = bool(taken)
                break
            if not some:  # the thread was woken for upkeep
                break
            taken += some
        batch = list[_Queued]()
        while taken and len(batch) < BATCH:
            batch.append(taken.popleft())
            if batch[-1].alone:
                break
        return batch, more

    def _next_jobs(self) -> list[_Queued] | None:
        """Wait for jobs; while there are none, continue the search index."""
        while self._is_behind:
            try:
                jobs = self._queue.get(timeout=IDLE)
                break
            except queue.Empty:
                if time.monotonic() - self._latest >= IDLE:
                    self._index()
        else:
            jobs = self._queue.get()
        self._is_behind = True
        return jobs

    def _index(self) -> None:
        """Index some messages; if that fails, the next search or write reports the error."""
        with self._using:
            try:
                self._examine(db := self._connected())
                self._is_behind = index_some(db)
            except (apsw.Error, StoreError, UnicodeDecodeError):
                self._is_behind = False
                self._disconnect()

    def _write(self, batch: list[_Queued]) -> None:
        together = [waiting for waiting in batch if not waiting.alone]
        if together:
            self._guarded(self._transact, together)
        if alone := batch[len(together) :]:
            self._guarded(_run_alone, alone)

    def _guarded(self, work: Callable[[Connection, list[_Queued]], None], batch: list[_Queued]) -> None:
        """Do the work of a batch; if it fails, every job in it gets the error."""
        try:
            work(self._prepared(), batch)
        except Exception as error:
            # Whatever it was: after an I/O error the page cache may hold what the disk does not, and the WAL
            # has to be settled again before the next commit follows it.
            self._disconnect()
            if isinstance(error, UNREADABLE) and len(batch) > 1:
                self._one_by_one(work, batch)
                return
            translated = fault(error, self._path) if isinstance(error, FAULTS) else error
            for waiting in batch:
                waiting.error = waiting.error or translated

    def _transact(self, db: Connection, batch: list[_Queued]) -> None:
        """Run a batch in one transaction, which may already have begun."""
        if not db.in_transaction:
            db.begin_write()
        try:
            if not db.in_transaction:
                db.execute("BEGIN IMMEDIATE")
            if not self._append_together(db, batch):
                self._known.forget()
                _note(batch, changes.run_each(db, [waiting.run for waiting in batch]))
            db.execute("COMMIT")
            # Only then, and before anyone is answered: the commit may have gone to a file that was replaced.
            db.check_files(within=LOOK_AGAIN)
        finally:
            db.end_write()
        self._known.committed(
            db
        )  # only if nothing was raised: places of a failed commit must not be believed

    def _append_together(self, db: Connection, batch: list[_Queued]) -> bool:
        """Run a batch that only appends; return False, with nothing written, if it must be run one by one."""
        appended = [waiting.change for waiting in batch if waiting.change is not None and waiting.is_plain]
        if len(appended) < len(batch):
            return False
        self._known.begin(db)
        try:
            outcomes = changes.commit_together(db, self._known, appended)
        except (apsw.ConstraintError, *UNUSABLE):
            # One of the statements wrote a part, and it is unknown whose: all are written again, one by one.
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            return False
        if outcomes is None:
            return False
        _note(batch, outcomes)
        return True

    def _one_by_one(self, work: Callable[[Connection, list[_Queued]], None], batch: list[_Queued]) -> None:
        """Do the work of a batch again, each job alone, since a damaged page affects a single session."""
        for waiting in batch:
            waiting.result = waiting.error = None
            self._guarded(work, [waiting])

    def _connected(self) -> Connection:
        if self._is_abandoned:
            raise StoreUnavailable(f"{self._path} was removed or replaced; open the store again")
        if self._db is None:
            self._db = self._adopted(connect(self._path, write=True))
        return self._db

    def _adopted(self, db: Connection) -> Connection:
        """Prepare a connection: it waits for locks if it may."""
        patient = patience(self._path)
        db.set_busy_handler(lambda calls: self._may_wait and patient(calls))
        return db

    def _disconnect(self) -> None:
        db, self._db, self._is_settled = self._db, None, False
        self._known = changes.KnownSessions()  # a new connection counts the commits of others anew
        if db is not None:
            db.close(True)


def _are_small(batch: list[_Queued]) -> bool:
    """Return True if all jobs are plain appends that together take little time."""
    sizes = [waiting.size for waiting in batch if waiting.is_plain]
    return len(sizes) == len(batch) and max(sizes) <= SMALL and sum(sizes) <= SMALL_BATCH


def _note(batch: list[_Queued], outcomes: Iterable[Any]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=True):
        is_refused = isinstance(outcome, TurnstateError)
        waiting.result, waiting.error = (None, outcome) if is_refused else (outcome, None)


def _run_alone(db: Connection, batch: list[_Queued]) -> None:
    for waiting in batch:
        waiting.result = waiting.run(db)


def _answer(batch: list[_Queued]) -> None:
    """Answer all jobs, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Queued]] = {}
    for waiting in batch:
        loops.setdefault(waiting.loop, []).append(waiting)
    for loop, those in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, those)
        except RuntimeError:  # the loop was closed, so no one waits for the result
            continue


def _settle(batch: list[_Queued]) -> None:
    for waiting in batch:
        waiting.settle()
