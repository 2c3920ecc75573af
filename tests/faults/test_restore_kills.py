"""Killed at any changing system call, a restore is finished or undone at the next start."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from restore_setup import RestoreSetup, State, leaked, state, torn, worker
from system_calls import Point, killing, points, watching
from thoroughness import LONG, rng, tell

from turnstate.checkpoints import ShadowRepository

QUICK = 12  # points that the quick version takes at random
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


def all_points(setup: RestoreSetup, act: str = "restore", plant: str = "") -> list[Point]:
    """List the changing calls of an act without a fault; opening changes something where it creates."""
    shadow, tree = setup.begin()
    with worker(act, shadow, tree, plant) as process:
        with watching(process, setup.folder / "calls", CHANGES) as calls:
            assert process.finishes()
        counted = zip(points(calls), calls, strict=True)
    return [point for point, call in counted if point.call != "openat" or "O_CREAT" in call.arguments]


def killed_at(point: Point, setup: RestoreSetup, act: str, plant: str = "") -> bool:
    """Kill an act at a point; tell whether it was reached."""
    shadow, tree = setup.begin()
    with worker(act, shadow, tree, plant) as process, killing(process, point):
        return not process.finishes()


def kill_at(
    point: Point, setup: RestoreSetup, target: State, act: str = "restore", plant: str = ""
) -> tuple[str, list[str]]:
    """Kill an act at a point; tell how the restore ended after the next start, and what was broken."""
    if not killed_at(point, setup, act, plant):
        return "not met", []
    end, broken = aftermath(setup, target)
    return end, [f"{point}: {what}" for what in broken]


def aftermath(setup: RestoreSetup, target: State) -> tuple[str, list[str]]:
    """Start again; tell how the restore ended, and what was broken."""
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
    return points if LONG or len(points) <= QUICK else rng("restore kills").sample(points, QUICK)


@pytest.mark.req("O3")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("act", ["restore", "open"])
def test_a_kill_at_any_system_call_is_finished_or_undone_at_the_next_start(
    act: str, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    setup = RestoreSetup(folder)
    target = setup.target()
    assert target != setup.before
    if act == "open":
        interrupt(setup)
    ends, broken = Counter[str](), list[str]()
    for point in some(all_points(setup, act)):
        end, wrong = kill_at(point, setup, target, act)
        ends[end] += 1
        broken += wrong
    told = "a restore" if act == "restore" else "the finishing of a restore that was killed"
    tell(
        record_property, f"killed in {told}", **{end.replace(" ", "_"): count for end, count in ends.items()}
    )
    assert broken == []
    assert ends["finished"] > 0


@pytest.mark.req("O2")
@pytest.mark.usefixtures("traced")
def test_a_kill_at_any_system_call_of_a_snapshot_costs_that_snapshot_at_most(
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
    tell(record_property, "killed in a snapshot", broken=len(broken), **counts)
    assert broken == []


def interrupt(setup: RestoreSetup) -> None:
    """Let every copy of the setup begin with a restore that was killed half-way."""
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
    late = [point for point in reversed(found) if point.call.startswith(("rename", "unlink", "mkdir"))]
    assert any(complaint in what for point in late for what in kill_at(point, setup, target, plant=plant)[1])
