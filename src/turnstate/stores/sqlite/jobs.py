"""Jobs of the writer: a change of a session, or a function of the connection, and who waits for it.

A job that is refused affects no other. Nearly all are refused before they have written anything; if one has
written, its batch is rolled back and run again with a savepoint for each job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import apsw

from ...errors import TurnstateError
from ..values import Change
from . import changes
from .faults import UNUSABLE, unusable

__all__ = ["Job", "Waiting", "answer", "attempt_each", "run_alone", "settle"]

Job = Callable[[apsw.Connection], Any]


class Waiting:
    """A change or a job, the future of its caller unless it is done at once, and its outcome."""

    __slots__ = ("alone", "change", "error", "future", "is_plain", "job", "loop", "result")
    future: asyncio.Future[Any]

    def __init__(self, job: Job | None, *, change: Change | None = None, alone: bool = False) -> None:
        self.job, self.change, self.alone = job, change, alone
        self.loop = asyncio.get_running_loop()
        self.is_plain = change is not None and changes.is_plain(change)
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, db: apsw.Connection) -> None:
        """Do it, in the transaction of the connection."""
        if self.change is not None:
            self.result = changes.commit(db, self.change)
        elif self.job is not None:
            self.result = self.job(db)

    def __await__(self) -> Generator[None, None, Any]:
        """Return the outcome of what is done already, after the other tasks of the loop had their turn."""
        yield
        if self.error is not None:
            raise self.error
        return self.result

    def settle(self) -> None:
        """Give the caller the outcome, in the thread of its loop."""
        if self.future.done():  # cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def attempt_each(db: apsw.Connection, batch: list[Waiting]) -> None:
    """Run a batch one by one; savepoints are the second choice, since most batches need none."""
    if not all(_attempt(db, waiting) for waiting in batch):
        db.execute("ROLLBACK")
        db.execute("BEGIN IMMEDIATE")
        for waiting in batch:
            _attempt_in_savepoint(db, waiting)


def _attempt(db: apsw.Connection, waiting: Waiting) -> bool:
    """Run one job; return False if it was refused after it had written. Other errors end the batch."""
    before = db.total_changes()
    waiting.result = waiting.error = None
    try:
        waiting.run(db)
    except (TurnstateError, *UNUSABLE) as error:
        waiting.error = error if isinstance(error, TurnstateError) else unusable(error)
        return db.total_changes() == before
    return True


def _attempt_in_savepoint(db: apsw.Connection, waiting: Waiting) -> None:
    db.execute("SAVEPOINT job")
    if not _attempt(db, waiting):
        db.execute("ROLLBACK TO job")
    db.execute("RELEASE job")


def run_alone(db: apsw.Connection, batch: list[Waiting]) -> None:
    """Run jobs that cannot be part of a transaction."""
    for waiting in batch:
        waiting.run(db)


def answer(batch: list[Waiting]) -> None:
    """Answer all jobs, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
    for waiting in batch:
        loops.setdefault(waiting.loop, []).append(waiting)
    for loop, those in loops.items():
        try:
            loop.call_soon_threadsafe(settle, those)
        except RuntimeError:  # the loop was closed: no one waits any more
            continue


def settle(batch: list[Waiting]) -> None:
    """Give the callers of jobs the outcome, in the thread of their loop."""
    for waiting in batch:
        waiting.settle()
