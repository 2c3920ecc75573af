"""Every acknowledged append survives a power cut at a random moment.

Only acknowledgements from before the cut count. A machine without power acknowledges nothing, but here the
process continues for a moment, and a sync that is running when ext4 is shut down can return success.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults.fork_server import ForkServer, Worker
from tests.faults.mounts import CUTS, Cut, Disk
from tests.faults.promises import Promises, losses
from tests.faults.recovery import examine
from tests.harness.thoroughness import report, rng, runs

LONGEST_WAIT = 0.004  # seconds from the last acknowledgement seen to the cut: a few commits
MAKING = 0.02  # seconds that the making of a file takes, or a little more
FEW_OR_MANY = (5, 60, 60, 400)  # acknowledgements until the cut: with many, SQLite carries its log over
MORE_THAN_FIT = 1_000  # appends between two cuts
DISK_LASTS = 50  # cuts until a new disk, so that files stay small and new ones are cut, too


def cut_once(worker: Worker, disk: Disk, how: Cut, promises: Promises, random: Random) -> None:
    """Let a worker append from one or many tasks, and cut the power after some acknowledgements."""
    prefix, size = f"cut{len(promises.asked)}", random.choice([1, 1, 3])
    for number in range(MORE_THAN_FIT):
        promises.ask(f"{prefix}-{number}", size)
    lanes, searching = random.choice([1, 8, 32]), random.random() < 0.5
    worker.tell("burst", prefix=prefix, count=MORE_THAN_FIT, size=size, lanes=lanes, searching=searching)
    promises.hear(worker.hear() for _ in range(random.randrange(random.choice(FEW_OR_MANY))))
    time.sleep(random.random() * LONGEST_WAIT)
    promises.hear(worker.heard_already())
    disk.cut(how)
    worker.kill()
    disk.restart()


def power_cuts(
    fork_server: ForkServer, home: Path, how: Cut, count: int, plant: str = ""
) -> tuple[int, list[str]]:
    """Cut the power many times; return the number of acknowledged appends, and what was broken."""
    random, acked, broken = rng(f"power {how.name} {plant}"), 0, list[str]()
    for first in range(0, count, DISK_LASTS):
        promises, session = Promises(), ""
        with Disk(home / f"{first}") as disk:
            url = f"sqlite:///{disk.path}/agent.db"
            for _ in range(first, min(count, first + DISK_LASTS)):
                with fork_server.worker(url, plant=plant) as worker:
                    session = worker.enter(session)
                    cut_once(worker, disk, how, promises, random)
                broken += examine(fork_server, url, session, promises)
                if broken:
                    break
        acked += len(promises.acked)
    return acked, broken


@pytest.mark.req("G6")
@pytest.mark.parametrize("how", CUTS, ids=lambda how: how.name.lower())
def test_a_power_cut_loses_no_acknowledged_append_and_tears_none(
    how: Cut, fork_server: ForkServer, home: Path, record_property: Callable[[str, object], None]
) -> None:
    cuts = runs(3, long=150)
    acked, broken = power_cuts(fork_server, home, how, cuts)
    report(record_property, "power cuts", cuts=cuts, acknowledged_appends=acked, lost=losses(broken))
    assert broken == []


@pytest.mark.req("G6")
def test_a_file_whose_creation_lost_power_is_created_at_the_next_opening(
    fork_server: ForkServer, home: Path, record_property: Callable[[str, object], None]
) -> None:
    cuts, random, broken = runs(3, long=90), rng("power at making"), list[str]()
    for number in range(cuts):
        with Disk(home / f"{number}") as disk:
            url = f"sqlite:///{disk.path}/agent.db"
            with fork_server.worker(url) as worker:
                worker.tell("open")
                time.sleep(random.random() * MAKING)
                disk.cut(random.choice(list(Cut)))
                worker.kill()
            disk.restart()
            broken += examine(fork_server, url, "", Promises())
    report(record_property, "power cuts while a file is made", cuts=cuts, unusable=len(broken))
    assert broken == []


def test_a_store_that_does_not_sync_every_commit_is_caught(fork_server: ForkServer, home: Path) -> None:
    _, broken = power_cuts(fork_server, home, Cut.DROP_JOURNAL, DISK_LASTS, plant="syncs now and then")
    assert losses(broken)
