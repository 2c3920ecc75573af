"""A disk that fails causes a typed error, and nothing that was acknowledged is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.fault_setup import APPEND, CHECKPOINT, SIZE, Setup, prepare
from tests.faults.fork_server import ForkServer, Reply, Worker
from tests.faults.mounts import Cut, Disk
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.faults.system_calls import failing
from tests.harness.thoroughness import report, runs

APPENDS = 6  # while the disk fails
FAULTS = [("fdatasync", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("pread64", "EIO")]
READS = ("pread64",)  # SQLite takes a page that cannot be read for a damaged one
LOCK_OF_SQLITE = re.compile(r"F_SETLK, \{l_type=F_(?:RD|WR)LCK")
OPERATIONS = {"beside the log": APPEND, "as it is carried over": CHECKPOINT}


def appends(worker: Worker, promises: Promises, *names: str) -> list[Reply]:
    """Append one after the other, with or without success; return the errors."""
    replies = [worker.ask("append", name=promises.ask(name, SIZE), size=SIZE) for name in names]
    promises.hear(replies)
    return [reply for reply in replies if "error" in reply]


def fail_once(
    setup: Setup, copy: Path, call: str, when: str, error: str, disk: Disk | None
) -> tuple[int, list[str]]:
    """Make a call fail, repeat what failed, kill the process; count errors, and return what was broken."""
    with setup.begin(copy) as (worker, promises, url):
        with failing(worker, call, when, error):
            failed = appends(worker, promises, *(f"during-{number}" for number in range(APPENDS)))
            read = worker.ask("read")
        again = appends(worker, promises, *(reply["name"] for reply in failed), "later")
        if disk:
            disk.cut(Cut.DROP_JOURNAL)
        worker.kill()
    if disk:
        disk.restart()
    errors = [*failed, *again, *([read] if "error" in read else [])]
    expected = ("StoreUnavailable", "StoreDamaged") if call in READS else ("StoreUnavailable",)
    broken = [f"another error: {reply}" for reply in errors if reply["error"] not in expected]
    broken += [f"refused when all was well again: {reply}" for reply in again]
    return len(errors), broken + examine(setup.fork_server, url, setup.session, promises)


def failures(
    setup: Setup, copy: Path, call: str, error: str, *, until: int, disk: Disk | None = None
) -> tuple[int, list[str]]:
    """Make the first call fail, the second, and so on, each once and each permanently."""
    errors, broken = 0, list[str]()
    for nth in range(1, until + 1):
        for when in (f"{nth}", f"{nth}+"):
            failed, wrong = fail_once(setup, copy, call, when, error, disk)
            errors += failed
            broken += [f"{call} {when} {error}: {what}" for what in wrong]
    return errors, broken


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("where", OPERATIONS)
@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_a_failing_disk_is_reported_and_nothing_acknowledged_is_lost(
    where: str,
    call: str,
    error: str,
    fork_server: ForkServer,
    folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    until = runs(1, long=24)
    errors, broken = failures(
        prepare(fork_server, folder, OPERATIONS[where]), folder / "run", call, error, until=until
    )
    title = f"{call} fails with {error} {where}"
    report(record_property, title, runs=2 * until, errors=errors, lost=losses(broken))
    assert broken == []
    assert errors


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
def test_after_a_failed_sync_and_a_power_cut_nothing_acknowledged_is_lost(
    fork_server: ForkServer, home: Path, record_property: Callable[[str, object], None]
) -> None:
    until = runs(1, long=APPENDS)
    with Disk(home / "image") as disk:
        setup = prepare(fork_server, home)
        errors, broken = failures(setup, disk.path / "run", "fdatasync", "EIO", until=until, disk=disk)
    title = "fdatasync fails, then the power"
    report(record_property, title, runs=2 * until, errors=errors, lost=losses(broken))
    assert broken == []
    assert errors


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_store_whose_disk_fails_can_still_be_closed(
    call: str, fork_server: ForkServer, folder: Path
) -> None:
    setup = prepare(fork_server, folder)
    with setup.begin(folder / "run") as (worker, promises, url):
        with failing(worker, call, "1+"):
            appends(worker, promises, "failed")
            reply = worker.ask("close")
        assert reply.get("error", "StoreUnavailable") == "StoreUnavailable"
        worker.close()
    assert examine(fork_server, url, setup.session, promises) == []


@pytest.mark.usefixtures("traced")
def test_a_store_that_hides_a_failed_sync_is_caught(fork_server: ForkServer, home: Path) -> None:
    with Disk(home / "image") as disk:
        setup = prepare(fork_server, home, plant="hides errors")
        _, broken = failures(setup, disk.path / "run", "fdatasync", "EIO", until=2, disk=disk)
    assert losses(broken)


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
def test_a_file_system_without_locks_is_named_before_sqlite_asks_for_any(
    fork_server: ForkServer, folder: Path
) -> None:
    (home := folder / "store").mkdir()
    with fork_server.worker(f"sqlite:///{home}/agent.db") as worker:
        for do in ("open", "append", "read"):
            with failing(worker, "fcntl", "1+", "ENOLCK", log=folder / do):
                reply = worker.ask(do, **({"name": "unlocked"} if do == "append" else {}))
            assert reply["error"] == "StoreUnavailable", reply
            assert "no lock service" in reply["text"]
            asked = (folder / do).read_text().splitlines()
            assert [line for line in asked if LOCK_OF_SQLITE.search(line)] == []
            if do == "open":
                worker.enter()
        worker.must("append", name="locked again")
        assert worker.must("read")["texts"]


@pytest.mark.req("G6")
def test_a_disk_that_goes_away_is_unavailable_and_not_damaged(fork_server: ForkServer, home: Path) -> None:
    with Disk(home) as disk:
        with fork_server.worker(f"sqlite:///{disk.path}/agent.db") as worker:
            worker.enter()
            worker.must("append", name="before")
            disk.cut(Cut.DROP_JOURNAL)
            replies = [worker.ask("read"), worker.ask("append", name="after"), worker.ask("read")]
            worker.kill()
        disk.restart()
    assert {reply.get("error") for reply in replies} == {"StoreUnavailable"}
