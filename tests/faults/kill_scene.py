"""The moment before a fault: a store with a little history, copied each time so that all begin alike.

An act is the command that the fault falls into: an append with statements prepared and threads born, an
append that also carries a full log over to the database, the making of a new file, the end of a session.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nursery import Nursery, Worker
from promises import Promises

SIZE = 3  # messages in an append
FILE = "agent.db"


@dataclass(frozen=True)
class Act:
    """What is about to happen when the fault comes."""

    do: str
    details: dict[str, Any] = field(default_factory=dict)
    asks: tuple[str, ...] = ()  # appends that it makes
    new: bool = False  # nothing is there yet, not even the file
    crowded: bool = False  # the log is so long that SQLite carries it over to the database meanwhile


APPEND = Act("append", {"name": "x", "size": SIZE}, asks=("x",))
CARRY = Act(
    "burst", {"prefix": "x", "count": 3, "size": SIZE, "lanes": 1}, asks=("x-0", "x-1", "x-2"), crowded=True
)
OPEN = Act("open", new=True)
CLOSE = Act("close")
CREATE = Act("create")
FORK = Act("fork")
RESET = Act("reset")


@dataclass
class Scene:
    """What every fault begins with."""

    nursery: Nursery
    template: Path
    session: str
    act: Act
    plant: str
    before: int  # appends that warm the worker, or crowd the log

    def begin(self, copy: Path) -> tuple[Worker, Promises, str]:
        """Start a worker on a fresh copy and bring it to the moment before the act."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.template, copy)
        sync(copy)
        promises, url = Promises(), f"sqlite:///{copy}/{FILE}"
        worker = self.nursery.worker(url, plant=self.plant)
        worker.must("warm")
        if not self.act.new:
            promises.hear([{"ack": promises.ask("first", SIZE)}])
            worker.enter(self.session)
            for number in range(self.before):
                append(worker, promises, f"before-{number}")
            worker.must("read_at_once")
        return worker, promises, url

    def perform(self, worker: Worker, promises: Promises) -> None:
        """Ask for the act; `resting` is the answer to wait for."""
        for name in self.act.asks:
            promises.ask(name, SIZE)
        worker.tell(self.act.do, **self.act.details)
        worker.tell("rest")


def append(worker: Worker, promises: Promises, name: str) -> None:
    """Append with success, and return when nothing is left to do, whatever was acknowledged."""
    promises.hear([worker.must("append", name=promises.ask(name, SIZE), size=SIZE)])
    worker.must("rest")


def sync(folder: Path) -> None:
    """Bring a folder and its files to the disk, so that they stand before the fault."""
    for path in (*folder.iterdir(), folder, folder.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def scene(nursery: Nursery, folder: Path, act: Act = APPEND, plant: str = "") -> Scene:
    """Make the store that the faults begin with."""
    template, session = folder / "template", ""
    template.mkdir()
    if not act.new:
        with nursery.worker(f"sqlite:///{template}/{FILE}") as worker:
            session = worker.enter()
            worker.must("append", name="first", size=SIZE)
            worker.must("close")
            worker.close()
    made = Scene(nursery, template, session, act, plant, before=2)
    if act.crowded:
        made.before = _appends_until_carried(made, folder / "probe") - len(act.asks) // 2
    return made


def _appends_until_carried(scene: Scene, copy: Path) -> int:
    """Count the appends before the first one that changes the database and not only the log."""
    worker, promises, _ = scene.begin(copy)
    with worker:
        unchanged, count = (copy / FILE).stat().st_mtime_ns, scene.before
        while (copy / FILE).stat().st_mtime_ns == unchanged:
            append(worker, promises, f"probe-{count}")
            count += 1
    return count - 1
