"""After a power cut an acknowledged snapshot is there, and a restore is finished or undone."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.faults.mounts import CUTS, Cut, Disk
from tests.faults.restore_setup import RestoreSetup, worker
from tests.faults.test_restore_kills import after_restart
from tests.harness.thoroughness import report, rng, runs
from turnstate.checkpoints import ShadowRepository
from turnstate.errors import CheckpointError

SNAPSHOT = 0.05  # seconds that a snapshot takes, or a little more
PATIENCE = 30.0
RESTORE = 0.3  # seconds that a restore takes, or a little more


def restart(disk: Disk) -> None:
    """Mount the disk again as soon as the killed git processes have ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return disk.restart()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def cut_while_snapshots_are_taken(disk: Disk, how: Cut, random: Random, plant: str) -> list[int]:
    """Cut the power while snapshots are taken; return those that were acknowledged before."""
    tree = disk.path / "tree"
    (tree / "b").mkdir(parents=True, exist_ok=True)
    os.sync()
    with worker("snapshots", disk.path / "home" / "shadow", tree, plant) as process:
        process.begin()
        heard = [process.hear() for _ in range(random.randrange(1, 4))]
        time.sleep(random.random() * SNAPSHOT)
        disk.cut(how)  # a word that is still under way when the power goes is not counted
        process.kill()
    restart(disk)
    return [int(number) for number in heard]


def lost(disk: Disk, acknowledged: list[int]) -> list[str]:
    """Return the snapshots that are missing, or do not hold what was written."""
    tree, missing = disk.path / "tree", list[str]()
    try:
        kept = ShadowRepository.open(disk.path / "home" / "shadow", tree)
        for number in acknowledged:
            kept.restore(f"s{number}")
            if (tree / "a").read_text() != f"{number}\n" * 500:
                missing.append(f"s{number}")
    except (CheckpointError, OSError) as error:
        missing.append(str(error))
    return missing


@pytest.mark.req("O4")
@pytest.mark.parametrize("how", CUTS, ids=lambda how: how.name.lower())
def test_a_power_cut_loses_no_acknowledged_snapshot(
    how: Cut, home: Path, record_property: Callable[[str, object], None]
) -> None:
    random, cuts, acknowledged, broken = rng(f"snapshots {how.name}"), runs(1, long=40), 0, list[str]()
    with Disk(home) as disk:
        for _ in range(cuts):
            numbers = cut_while_snapshots_are_taken(disk, how, random, plant="")
            acknowledged += len(numbers)
            broken += lost(disk, numbers)
    report(
        record_property,
        "power cuts while snapshots are taken",
        cuts=cuts,
        acknowledged=acknowledged,
        lost=len(broken),
    )
    assert broken == []


def test_snapshots_that_are_not_synced_are_caught(home: Path) -> None:
    random = rng("unsynced snapshots")
    for number in range(20):  # another process may sync everything just before the cut
        with Disk(home / str(number)) as disk:
            numbers = cut_while_snapshots_are_taken(disk, Cut.DROP_JOURNAL, random, plant="does not sync")
            if lost(disk, numbers):
                return
    pytest.fail("nothing was lost")


@pytest.mark.req("O3")
@pytest.mark.parametrize("how", CUTS, ids=lambda how: how.name.lower())
def test_a_restore_that_loses_its_power_is_finished_or_undone_at_the_next_start(
    how: Cut, home: Path, record_property: Callable[[str, object], None]
) -> None:
    random, cuts, ends, broken = rng(f"restores {how.name}"), runs(1, long=40), Counter[str](), list[str]()
    with Disk(home) as disk:
        setup = RestoreSetup(disk.path)
        target = setup.target()
        for _ in range(cuts):
            shadow, tree = setup.begin()
            os.sync()
            with worker("restore", shadow, tree) as process:
                process.begin()
                time.sleep(random.random() * RESTORE)
                disk.cut(how)
                process.kill()
            restart(disk)
            end, wrong = after_restart(setup, target)
            ends[end] += 1
            broken += wrong
    report(record_property, "power cuts in a restore", cuts=cuts, **ends)
    assert broken == []
