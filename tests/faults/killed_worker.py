"""A program that kills a worker at every point where it writes, and reports what the next worker makes of it.

    python -m tests.faults.killed_worker FOLDER [PLANT]

One interpreter has imported everything and forks a process for each step, so that a killed one is really
gone: its locks, its threads, its half-written lines. Prints one JSON object a point; with a planted bug it
ends where the bug shows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.unit.memory.offload import begin, end, evict, said
from turnstate.memory import Worker
from turnstate.memory.builtin import connect, deliveries, engine, sqlite
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite.connection import with_lock
from turnstate.stores.values import Position
from turnstate.testing.doubles import FixedClock

MESSAGES = 12
NOW = 10_000
A_DAY = 24 * 3600 * 1000
MOST_POINTS = 500
WORTH_HALVING = 512
EVERY_MESSAGE_ONCE = {f"m{number + 1}": 1 for number in range(MESSAGES)}
EVERY_DELIVERY_ONCE = {"owner": 1, "summary": 1, "delivery": 2}


class Fuse:
    """Kills the process at the Nth point that it comes to."""

    def __init__(self, when: int) -> None:
        self._left = when

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


def arm(fuse: Fuse) -> None:
    """Put points around everything that is written."""
    write, fsync, delivered = os.write, os.fsync, SqliteStore.delivered

    def half_a_write(file: int, data: Any) -> int:
        fuse.burn()
        written = write(file, bytes(data)[: len(data) // 2 if len(data) > WORTH_HALVING else None])
        fuse.burn()
        return written

    def watched_fsync(file: int) -> None:
        fuse.burn()
        fsync(file)
        fuse.burn()

    async def watched_delivered(store: SqliteStore, id: str) -> None:
        fuse.burn()
        await delivered(store, id)
        fuse.burn()

    def watched_lock(connection: Any, work: Callable[[], None]) -> None:
        def watched() -> None:
            fuse.burn()
            work()
            fuse.burn()

        with_lock(connection, watched)
        fuse.burn()

    os.write, os.fsync, SqliteStore.delivered = half_a_write, watched_fsync, watched_delivered  # type: ignore[method-assign]
    sqlite.with_lock = watched_lock


class Hasty(Worker):
    """Acknowledges a parcel before the engine has it."""

    async def _pass_on(self, parcel: Any, row: Any, inside: Any) -> None:
        await self._store.delivered(parcel.id)
        await super()._pass_on(parcel, row, inside)


def every_draft(batch: Any, *_: Any) -> Any:
    """Take every message for a new one."""
    yield from ()
    return [(draft, None) for draft in batch.drafts]


def plant(bug: str) -> type[Worker]:
    if bug == "forgetful":
        deliveries._unknown = every_draft
    return Hasty if bug == "hasty" else Worker


async def prepare(folder: Path) -> None:
    store = SqliteStore(str(folder / "store.db"))
    await begin(store, said(*(f"text {number}" for number in range(MESSAGES))))
    await evict(store, "m1", "m7", head=Position(1, MESSAGES), summary="The beginning.")
    await end(store)
    await store.close()


async def work(folder: Path, worker: type[Worker], now: int) -> None:
    store, memory = SqliteStore(str(folder / "store.db")), await connect(str(folder / "memory.db"))
    await worker(store, memory, clock=FixedClock(now)).run_once()
    left = await store.parcels()
    await store.close()
    await memory.close()
    if left:
        os._exit(3)


def forked(task: Callable[[], Coroutine[Any, Any, None]], fuse: Fuse | None = None) -> int:
    """Run something in a process of its own, and give its exit code, negative where it was killed."""
    pid = os.fork()
    if pid == 0:
        if fuse:
            arm(fuse)
        asyncio.run(task())
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def held(folder: Path) -> dict[str, Counter[str]]:
    """Return how often the memory has each message, and each thing that a delivery adds once."""
    with closing(sqlite3.connect(folder / "memory.db")) as db:
        rows = db.execute(
            "SELECT message, iif(role = 'summary', role, 'message') FROM document "
            "UNION ALL SELECT key, 'delivery' FROM delivery UNION ALL SELECT name, 'owner' FROM owner"
        ).fetchall()
    return {
        "messages": Counter(id for id, kind in rows if kind == "message"),
        "ends": Counter(kind for _, kind in rows if kind != "message"),
    }


def is_whole(report: dict[str, Any]) -> bool:
    return (
        report["outbox_empty"]
        and report["messages"] == EVERY_MESSAGE_ONCE
        and report["ends"] == EVERY_DELIVERY_ONCE
    )


def main(folder: Path, bug: str) -> None:
    logging.disable()
    engine.BATCH = 5
    worker = plant(bug)
    original = folder / "original"
    original.mkdir()
    forked(lambda: prepare(original))
    for point in range(1, MOST_POINTS):
        place = folder / str(point)
        shutil.copytree(original, place)
        first = forked(lambda place=place: work(place, worker, NOW), Fuse(point))  # type: ignore[misc]
        second = forked(lambda place=place: work(place, worker, NOW + A_DAY))  # type: ignore[misc]
        report = {
            "killed": first == -signal.SIGKILL,
            "outbox_empty": second == 0,
            **held(place),
        }
        print(json.dumps(report))
        if first == 0 or (bug and not is_whole(report)):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
