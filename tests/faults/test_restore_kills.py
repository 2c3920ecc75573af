"""A restore that is killed at any system call is finished or undone at the next start."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.restore_setup import RestoreSetup, State, leaked, state, torn, worker
from tests.faults.system_calls import Point, killing, points, watching
from tests.harness.thoroughness import LONG, report, rng
from turnstate.checkpoints import ShadowRepository

QUICK = 3  # points of the quick version: one at random in each third of the operation
CHANGES = (
    *("write", "pwrite64", "openat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *(
        "mkdir",
        "mkdirat",
        "symlink",
        "symlinkat",
        "fchmod",
        "chmod",
        "fchmodat",
        "ftruncate",
        "fsync",
        "vfork",
    ),
)


def all_points(setup: RestoreSetup, operation: str = "restore", plant: str = "") -> list[Point]:
    """Return the calls of an operation that change something; opening a file does if it creates it."""
    shadow, tree = setup.begin()
    with worker(operation, shadow, tree, plant) as process:
        with watching(process, setup.folder / "calls", CHANGES) as calls:
            assert process.finishes()
        counted = zip(points(calls), calls, strict=True)
    return [point for point, call in counted if point.call != "openat" or "O_CREAT" in call.arguments]


def killed_at(point: Point, setup: RestoreSetup, operation: str, plant: str = "") -> bool:
    """Kill an operation at a point; return True if it was reached."""
    shadow, tree = setup.begin()
    with worker(operation, shadow, tree, plant) as process, killing(process, point):
        return not process.finishes()


def kill_at(
    point: Point, setup: RestoreSetup, target: State, operation: str = "restore", plant: str = ""
) -> tuple[str, list[str]]:
    """Kill an operation at a point; return how the restore ended at the next start, and what was broken."""
    if not killed_at(point, setup, operation, plant):
        return "not met", []
    end, broken = after_restart(setup, target)
    return end, [f"{point}: {what}" for what in broken]


def after_restart(setup: RestoreSetup, target: State) -> tuple[str, list[str]]:
    """Start again; return how the restore ended, and what was broken."""
    shadow, tree = setup.shadow, setup.tree
    broken = list(torn(setup.before, state(tree), target))
    kept = ShadowRepository.open(shadow, tree)
    after = state(tree)
    if after == setup.before:
        return "undone", broken
    if after != target:
        wrong = sorted(path for path in after.keys() | target.keys() if after.get(path) != target.get(path))
        return "mixed", [*broken, f"neither finished nor undone: {wrong}"]
    if ShadowRepository.open(shadow, tree).recovered is not None:
        broken.append("finished twice")
    try:
        kept.undo()
    except Exception as error:
        return "finished", [*broken, f"no undo: {error}"]
    if leaked(shadow):
        broken.append("an ignored file is in the shadow repository")
    return "finished", [*broken, *(["the undo leads elsewhere"] if state(tree) != setup.before else [])]


def some(points: list[Point]) -> list[Point]:
    if LONG or len(points) <= QUICK:
        return points
    dice, borders = rng("restore kills"), [len(points) * third // QUICK for third in range(QUICK + 1)]
    return [points[dice.randrange(begin, end)] for begin, end in pairwise(borders)]


@pytest.mark.req("O3")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("operation", ["restore", "open"])
def test_a_restore_killed_at_any_system_call_is_finished_or_undone_at_the_next_start(
    operation: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    setup = RestoreSetup(folder)
    target = setup.target()
    assert target != setup.before
    if operation == "open":
        interrupt(setup)
    ends, broken = Counter[str](), list[str]()
    for point in some(all_points(setup, operation)):
        end, wrong = kill_at(point, setup, target, operation)
        ends[end] += 1
        broken += wrong
    told = "a restore" if operation == "restore" else "the finishing of a restore that was killed"
    report(
        record_property, f"killed in {told}", **{end.replace(" ", "_"): count for end, count in ends.items()}
    )
    assert broken == []
    assert ends["finished"] > 0


@pytest.mark.req("O2")
@pytest.mark.usefixtures("traced")
def test_a_kill_at_any_system_call_of_a_snapshot_loses_at_most_that_snapshot(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    setup, taken, broken = RestoreSetup(folder), Counter[str](), list[str]()
    for point in some(all_points(setup, "snapshot")):
        assert killed_at(point, setup, "snapshot")
        kept = ShadowRepository.open(setup.shadow, setup.tree)
        tags = [one.tag for one in kept.snapshots()]
        taken["taken" if "2" in tags else "not taken"] += 1
        kept.snapshot("3")
        if tags[:2] != ["0", "1"] or state(setup.tree) != setup.before:
            broken.append(f"{point}: {tags}")
        if not kept.diff("0", "1").files or kept.diff("3").files or ("2" in tags and kept.diff("2").files):
            broken.append(f"{point}: a snapshot does not hold what it should")
    counts = {what.replace(" ", "_"): count for what, count in taken.items()}
    report(record_property, "killed in a snapshot", broken=len(broken), **counts)
    assert broken == []


def interrupt(setup: RestoreSetup) -> None:
    """Make a half-finished restore the state that every run starts from."""
    placing = [point for point in all_points(setup) if point.call == "rename"]
    assert killed_at(placing[len(placing) // 2], setup, "restore")
    assert (setup.shadow / "restore.journal").exists()
    shutil.rmtree(setup.template)
    shutil.copytree(setup.run, setup.template, symlinks=True)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        ("no journal", "neither finished nor undone"),
        ("ends the journal too early", "neither finished nor undone"),
        ("forgets the undo", "no undo"),
    ],
)
def test_a_planted_bug_in_a_restore_is_caught(plant: str, complaint: str, folder: Path) -> None:
    setup = RestoreSetup(folder)
    target = setup.target()
    found = all_points(setup, plant=plant)
    placing = [point for point in found if point.call.startswith(("rename", "unlink", "mkdir"))]
    middle = len(placing) // 2
    outward = sorted(placing, key=lambda point: abs(placing.index(point) - middle))
    assert any(
        complaint in what for point in outward for what in kill_at(point, setup, target, plant=plant)[1]
    )
