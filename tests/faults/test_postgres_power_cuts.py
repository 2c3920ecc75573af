"""What PostgreSQL acknowledged survives a power cut under load.

Its files are on a disk that is written late, so that only what the server synced is there afterwards. Only
acknowledgements from before the cut count.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.faults import mounts
from tests.faults.mounts import Cut, Disk
from tests.faults.postgres_faults import broken, create_sessions
from tests.faults.postgres_writers import USER, Writers, numbered
from tests.faults.promises import Promises, losses
from tests.harness.postgres_server import PostgresServer
from tests.harness.thoroughness import report, rng, runs
from turnstate.errors import TurnstateError
from turnstate.session.manager import SessionManager

LANES = 8
LONGEST_WAIT = 0.01  # seconds from the last acknowledgement waited for to the cut
MOST_BETWEEN = 100  # acknowledgements from a start to the cut
ROOM = 512 << 20


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A disk whose power can be cut, and that the user of the server can access."""
    if reason := mounts.missing():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="turnstate-") as home:
        Path(home).chmod(0o711)
        with Disk(Path(home), size=ROOM) as made:
            yield made


async def cut_once(
    server: PostgresServer, disk: Disk, ids: list[str], promises: Promises, random: Random
) -> None:
    """Append, and cut the power after some acknowledgements."""
    writers, prefix, over = Writers(Promises()), f"cut{len(promises.asked)}", asyncio.Event()
    async with await SessionManager.open(server.url()) as sessions:
        handles = [await sessions.open(ids[lane % len(ids)], user=USER) for lane in range(LANES)]
        names = [numbered(f"{prefix}.{lane}", over.is_set) for lane in range(LANES)]
        writing = [asyncio.create_task(writers.write(*one)) for one in zip(handles, names, strict=True)]
        await writers.heard_more(random.randrange(MOST_BETWEEN))
        await asyncio.sleep(random.random() * LONGEST_WAIT)
        promises.acked += writers.promises.acked
        disk.cut(random.choice(list(Cut)))
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        promises.asked |= writers.promises.asked
        await asyncio.to_thread(server.stop, signal.SIGQUIT)


def found_after_start(server: PostgresServer, ids: list[str], promises: Promises) -> list[str]:
    """Start a server again, and return what is broken: everything if it does not start."""
    try:
        server.start()
        return asyncio.run(broken(server.url(), ids, promises))
    except (TurnstateError, RuntimeError) as error:
        return [f"lost: all, {error}"]


def power_cuts(disk: Disk, count: int, **settings: str) -> tuple[int, list[str]]:
    """Cut the power of a server many times; return the number of acknowledged appends, and the faults."""
    random, promises = rng(f"power of a server {settings}"), Promises()
    server = PostgresServer(home=disk.path, recovery_init_sync_method="syncfs", **settings)
    try:
        ids = asyncio.run(create_sessions(server.url(), 2))
        subprocess.run(["sync", "-f", str(disk.path)], check=True)  # it was made without waiting for the disk
        for _ in range(count):
            asyncio.run(cut_once(server, disk, ids, promises, random))
            disk.restart()
            if wrong := found_after_start(server, ids, promises):
                return len(promises.acked), wrong
        return len(promises.acked), []
    finally:
        server.remove()


@pytest.mark.req("G3", "G6")
def test_a_power_cut_under_a_server_loses_no_acknowledged_append_and_tears_none(
    disk: Disk, record_property: Callable[[str, object], None]
) -> None:
    cuts = runs(2, long=60)
    acked, wrong = power_cuts(disk, cuts)
    report(
        record_property, "power cuts of PostgreSQL", cuts=cuts, acknowledged_appends=acked, lost=losses(wrong)
    )
    assert wrong == []


def test_a_server_that_does_not_sync_is_caught(disk: Disk) -> None:
    _, wrong = power_cuts(disk, 50, fsync="off")  # until one is found: usually the first
    assert losses(wrong)
