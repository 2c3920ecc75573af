"""A program that kills a worker at every point where it writes, and reports what the next worker makes of it.

    python killed_worker.py FOLDER [PLANT]

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
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from offload import begin, end, evict, said

from turnstate.memory import Worker, jsonl
from turnstate.memory.jsonl import JsonlEngine
from turnstate.memory.jsonl_file import MemoryFile
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.values import Position
from turnstate.testing.doubles import FixedClock

MESSAGES = 12
NOW = 10_000
A_DAY = 24 * 3600 * 1000
MOST_POINTS = 500
WORTH_HALVING = 512
EVERY_MESSAGE_ONCE = {f"m{number + 1}": 1 for number in range(MESSAGES)}
EVERY_DELIVERY_ONCE = {"user": 1, "summary": 1, "session": 1}


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

    os.write, os.fsync, SqliteStore.delivered = half_a_write, watched_fsync, watched_delivered  # type: ignore[method-assign]


class Hasty(Worker):
    """Acknowledges a parcel before the engine has it."""

    async def _pass_on(self, parcel: Any, row: Any, inside: Any) -> None:
        await self._store.delivered(parcel.id)
        await super()._hand_over(parcel, row, inside)


def plant(bug: str) -> type[Worker]:
    if bug == "forgetful":
        MemoryFile._note = lambda *_: True  # type: ignore[method-assign]
    return Hasty if bug == "hasty" else Worker


async def prepare(folder: Path) -> None:
    store = SqliteStore(str(folder / "store.db"))
    await begin(store, said(*(f"text {number}" for number in range(MESSAGES))))
    await evict(store, "m1", "m7", head=Position(1, MESSAGES), summary="The beginning.")
    await end(store)
    await store.close()


async def work(folder: Path, worker: type[Worker], now: int) -> None:
    store = SqliteStore(str(folder / "store.db"))
    await worker(store, JsonlEngine(folder / "memory"), clock=FixedClock(now)).run_once()
    left = await store.parcels()
    await store.close()
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


def lines(folder: Path) -> list[dict[str, Any]]:
    found = (line for path in folder.glob("memory/*/*.jsonl") for line in path.read_bytes().splitlines(True))
    return [json.loads(line) for line in found if line.endswith(b"\n")]


def is_whole(report: dict[str, Any]) -> bool:
    return (
        report["outbox_empty"]
        and report["messages"] == EVERY_MESSAGE_ONCE
        and report["ends"] == EVERY_DELIVERY_ONCE
    )


def main(folder: Path, bug: str) -> None:
    logging.disable()
    jsonl.BATCH = 5
    worker = plant(bug)
    original = folder / "original"
    original.mkdir()
    forked(lambda: prepare(original))
    for point in range(1, MOST_POINTS):
        place = folder / str(point)
        shutil.copytree(original, place)
        first = forked(lambda place=place: work(place, worker, NOW), Fuse(point))  # type: ignore[misc]
        second = forked(lambda place=place: work(place, worker, NOW + A_DAY))  # type: ignore[misc]
        held = lines(place)
        report = {
            "killed": first == -signal.SIGKILL,
            "outbox_empty": second == 0,
            "messages": Counter(line["id"] for line in held if line["kind"] == "message"),
            "ends": Counter(line["kind"] for line in held if line["kind"] != "message"),
        }
        print(json.dumps(report))
        if first == 0 or (bug and not is_whole(report)):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
