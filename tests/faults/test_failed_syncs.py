"""After a sync that failed once, a power cut loses nothing that was acknowledged, not even after a restart.

Linux marks pages as clean when writing them fails: the next sync succeeds, and the disk still has the old
pages. Until they are written anew, they exist only in memory, where every process reads them. So a model of
the disk follows the writes and syncs of the workers, and keeps the old pages where a sync failed.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from tests.faults.fault_setup import FILE, SIZE, Setup, prepare
from tests.faults.fork_server import ForkServer, Reply, Worker
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.faults.system_calls import _attached
from tests.harness.thoroughness import report, runs

PAGE = 4096
WRITE = re.compile(r"^\d+ +pwrite64\(\d+<(?P<path>[^>]*)>.*, (?P<size>\d+), (?P<place>\d+)\) += \d+")
SYNC = re.compile(r"^\d+ +f(?:data)?sync\(\d+<(?P<path>[^>]*)>\) += (?P<result>-?\d+)")
CUT = re.compile(r"^\d+ +ftruncate\(\d+<(?P<path>[^>]*)>, (?P<size>\d+)\)")


class DiskModel:
    """What the disk has of the files in a folder: for each page that is not written, its former bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._copies()
        self._dirty = defaultdict[str, set[int]](set)  # written, not synced
        self._lost = defaultdict[str, set[int]](set)  # a sync of them failed, and they were not written since

    def _copies(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self._folder.iterdir() if path.suffix != ".db-shm"}

    def synced(self) -> None:
        """Note that everything is on the disk."""
        self._before = self._copies()

    @contextmanager
    def following(self, workers: Worker, log: Path, *inject: str) -> Iterator[None]:
        """Follow the calls of a worker, and let some of them fail."""
        calls = "trace=?pwrite64,?fdatasync,?fsync,?ftruncate"
        with _attached("-f", "-y", "-s", "0", "-o", str(log), "-e", calls, *inject, "-p", str(workers.pid)):
            yield
        for line in log.read_text().splitlines():
            self._follow(line)

    def _follow(self, line: str) -> None:
        if found := WRITE.match(line):
            name, first = Path(found["path"]).name, int(found["place"])
            pages = range(first // PAGE, (first + int(found["size"]) - 1) // PAGE + 1)
            self._dirty[name].update(pages)
            self._lost[name].difference_update(pages)
        elif found := SYNC.match(line):
            name = Path(found["path"]).name
            if found["result"] != "0":
                self._lost[name] |= self._dirty[name]
            self._dirty[name].clear()
        elif (found := CUT.match(line)) and found["size"] == "0":
            self._dirty[Path(found["path"]).name].clear()
            self._lost[Path(found["path"]).name].clear()

    @property
    def lost(self) -> int:
        """The number of pages that only memory has, and that will never be written."""
        return sum(map(len, self._lost.values()))

    def cut_power(self, target: Path) -> None:
        """Copy the files as they are on the disk."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for name, data in self._copies().items():
            image, before = bytearray(data), self._before.get(name, b"")
            for page in self._dirty[name] | self._lost[name]:
                start = page * PAGE
                old = before[start : start + PAGE]
                image[start : start + PAGE] = old.ljust(len(image[start : start + PAGE]), b"\0")
            (target / name).write_bytes(image)


def appends(worker: Worker, promises: Promises, *names: str) -> list[Reply]:
    """Append one after the other; return the errors."""
    replies = [worker.ask("append", name=promises.ask(name, SIZE), size=SIZE) for name in names]
    promises.hear(replies)
    return [reply for reply in replies if "error" in reply]


def fail_once(setup: Setup, folder: Path, nth: int, *, restarts: bool) -> tuple[int, list[str]]:
    """Let the Nth sync fail, repeat, perhaps in a new process, and cut the power; return what was broken."""
    copy, log = folder / "run", folder / "calls"
    failed, pages = list[Reply](), 0
    with setup.begin(copy) as (worker, promises, url):
        disk = DiskModel(copy)
        fails = f"inject=?fdatasync,?fsync:error=EIO:when={nth}"
        with disk.following(worker, log, "-e", fails):
            for number in range(20):
                failed = appends(worker, promises, f"during-{number}")
                if failed:
                    break
                disk.synced()  # every append before the failure is on the disk
        pages = disk.lost
        if not restarts:
            with disk.following(worker, log):
                again = appends(worker, promises, failed[0]["name"], "later-1", "later-2")
        worker.kill()
    if restarts:
        with setup.fork_server.worker(url, plant=setup.plant) as worker, disk.following(worker, log):
            worker.enter(setup.session)
            again = appends(worker, promises, failed[0]["name"], "later-1", "later-2")
            worker.kill()
    disk.cut_power(folder / "disk")
    broken = [f"not typed: {reply}" for reply in failed if reply["error"] != "StoreUnavailable"]
    broken += [f"refused when all was well again: {reply}" for reply in again]
    found = examine(setup.fork_server, f"sqlite:///{folder}/disk/{FILE}", setup.session, promises)
    return pages, broken + found


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
def test_a_sync_that_fails_once_and_a_power_cut_lose_nothing_acknowledged(
    restarts: bool, fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    setup, pages, broken, until = prepare(fork_server, folder), 0, list[str](), runs(1, long=12)
    for nth in range(1, until + 1):
        lost, wrong = fail_once(setup, folder, nth, restarts=restarts)
        pages += lost
        broken += [f"sync {nth}: {what}" for what in wrong]
    title = "syncs that fail once, then the power"
    report(record_property, title, runs=until, pages_only_in_memory=pages, lost=losses(broken))
    assert broken == []
    assert pages


def fail_once_in_memory(fork_server: ForkServer, folder: Path, *, plant: str = "") -> list[str]:
    """Let a sync of a delivery fail, repeat it in a new process, and cut the power; return what was lost."""
    (run := folder / "run").mkdir()
    path, promises = str(run / "memory.db"), Promises()

    def deliver(worker: Worker, name: str) -> Reply:
        reply = worker.ask("deliver", path=path, name=promises.ask(name, 1))
        promises.hear([reply])
        return reply

    with fork_server.worker("", plant=plant) as worker:
        deliver(worker, "first")
        disk = DiskModel(run)
        with disk.following(worker, folder / "calls", "-e", "inject=?fdatasync,?fsync:error=EIO:when=1"):
            assert deliver(worker, "second")["error"] == "StoreUnavailable"
        assert disk.lost
        worker.kill()
    with fork_server.worker("", plant=plant) as worker, disk.following(worker, folder / "calls"):
        deliver(worker, "second")
        deliver(worker, "later")
        worker.kill()
    disk.cut_power(folder / "disk")
    with closing(apsw.Connection(str(folder / "disk" / "memory.db"))) as db:
        found = [id for (id,) in db.execute("SELECT message FROM document ORDER BY rowid").fetchall()]
    return promises.broken_by(found)


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
def test_a_memory_loses_nothing_acknowledged_either(fork_server: ForkServer, folder: Path) -> None:
    assert fail_once_in_memory(fork_server, folder) == []


@pytest.mark.usefixtures("traced")
def test_a_memory_that_trusts_the_pages_in_memory_is_caught(fork_server: ForkServer, folder: Path) -> None:
    assert losses(fail_once_in_memory(fork_server, folder, plant="settles nothing"))


@pytest.mark.usefixtures("traced")
def test_a_store_that_trusts_the_pages_in_memory_is_caught(fork_server: ForkServer, folder: Path) -> None:
    setup = prepare(fork_server, folder, plant="settles nothing")
    _, broken = fail_once(setup, folder, 1, restarts=True)
    assert losses(broken)
