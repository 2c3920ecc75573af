"""The state before a fault: a store with a short history, copied for each fault.

An operation is the command that the fault falls into: an append with statements prepared and threads born, an
append that also carries a full log over to the database, the making of a new file, the end of a session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.fork_server import ForkServer, Worker
from tests.faults.promises import Promises
from turnstate.stores.sqlite.writer import GROWN_AFTER, QUICK_COMMITS

SIZE = 3  # messages in an append
FILE = "agent.db"


@dataclass(frozen=True)
class Operation:
    """The command that the fault interrupts."""

    do: str
    details: dict[str, Any] = field(default_factory=dict)
    asks: tuple[str, ...] = ()  # appends that it makes
    new: bool = False  # nothing is there yet, not even the file
    grows_log: bool = False  # the writer gives the log its final size meanwhile
    fills_log: bool = False  # the log is so long that it is carried over to the database meanwhile
    in_loop: bool = False  # it commits in the thread of the event loop


APPEND = Operation("append", {"name": "x", "size": SIZE}, asks=("x",))
CHECKPOINT = Operation(
    "burst", {"prefix": "x", "count": 3, "size": SIZE, "lanes": 1}, asks=("x-0", "x-1", "x-2"), fills_log=True
)
APPEND_IN_LOOP = Operation("append", {"name": "x", "size": SIZE}, asks=("x",), in_loop=True)
OPEN = Operation("open", new=True)
CLOSE = Operation("close")
CREATE = Operation("create")
FORK = Operation("fork")
RESET = Operation("reset")
SEARCH = Operation("search")
GROW = Operation(  # the second append waits until the log has grown
    "burst", {"prefix": "x", "count": 2, "size": SIZE, "lanes": 1}, asks=("x-0", "x-1"), grows_log=True
)


@dataclass
class Setup:
    """The store that every fault starts from."""

    fork_server: ForkServer
    template: Path
    session: str
    operation: Operation
    plant: str
    before: int  # appends that warm the worker, or crowd the log

    @contextmanager
    def begin(self, copy: Path) -> Iterator[tuple[Worker, Promises, str]]:
        """Run a worker on a fresh copy, ready for the operation."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.template, copy)
        sync(copy)
        promises, url = Promises(), f"sqlite:///{copy}/{FILE}"
        where = url if self.operation.in_loop else f"{url}?commit=thread"
        with self.fork_server.worker(where, plant=self.plant) as worker:
            worker.must("warm")
            if not self.operation.new:
                promises.hear([{"ack": promises.ask("first", SIZE)}])
                worker.enter(self.session)
                for number in range(self.before):
                    append(worker, promises, f"before-{number}")
                worker.must("read_at_once")
            yield worker, promises, url

    def perform(self, worker: Worker, promises: Promises) -> None:
        """Send the operation; `resting` is the answer to wait for."""
        for name in self.operation.asks:
            promises.ask(name, SIZE)
        worker.tell(self.operation.do, **self.operation.details)
        worker.tell("rest")


def append(worker: Worker, promises: Promises, name: str) -> None:
    """Append successfully, and return when the worker has nothing left to do."""
    promises.hear([worker.must("append", name=promises.ask(name, SIZE), size=SIZE)])
    worker.must("rest")


def sync(folder: Path) -> None:
    """Sync a folder and its files, so that the fault cannot affect them."""
    for path in (*folder.iterdir(), folder, folder.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def prepare(fork_server: ForkServer, folder: Path, operation: Operation = APPEND, plant: str = "") -> Setup:
    """Create the store that every fault starts from."""
    template, session = folder / "template", ""
    template.mkdir()
    if not operation.new:
        with fork_server.worker(f"sqlite:///{template}/{FILE}") as worker:
            session = worker.enter()
            worker.must("append", name="first", size=SIZE)
            worker.must("close")
            worker.close()
    made = Setup(fork_server, template, session, operation, plant, before=2)
    if operation.in_loop:
        made.before = QUICK_COMMITS + 3
    if operation.grows_log:
        made.before = GROWN_AFTER - 1
    if operation.fills_log:
        made.before = _appends_until_carried(made, folder / "probe") - len(operation.asks) // 2
    return made


def _appends_until_carried(setup: Setup, copy: Path) -> int:
    """Count the appends before the first one that makes SQLite write the log back to the database."""
    with setup.begin(copy) as (worker, promises, _):
        unchanged, count = (copy / FILE).stat().st_mtime_ns, setup.before
        while (copy / FILE).stat().st_mtime_ns == unchanged:
            append(worker, promises, f"probe-{count}")
            count += 1
    return count - 1
