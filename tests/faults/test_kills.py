"""An append is all or nothing: the process is killed at each of its system calls in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.fault_setup import (
    APPEND,
    APPEND_IN_LOOP,
    CHECKPOINT,
    CLOSE,
    CREATE,
    FORK,
    GROW,
    OPEN,
    RESET,
    SEARCH,
    Setup,
    prepare,
)
from tests.faults.fork_server import Died, ForkServer, Reply, Worker
from tests.faults.promises import losses
from tests.faults.recovery import examine
from tests.faults.system_calls import Point, killing, points, watching
from tests.harness.thoroughness import LONG, report, rng

OPERATIONS = {
    "an append": APPEND,
    "an append in the thread of the loop": APPEND_IN_LOOP,
    "an append that carries the log over": CHECKPOINT,
    "the making of a new file": OPEN,
    "the closing of a file": CLOSE,
    "the making of a session": CREATE,
    "a fork": FORK,
    "a reset": RESET,
    "the growing of the log": GROW,
    "a search that indexes what is missing": SEARCH,
}
TELLING = ("sendto", "sendmsg")  # by the main thread to the test, by others only to wake the main one
QUICK = 5  # points of an operation that the quick version takes at random; a plain append is always complete


def until_rest(worker: Worker) -> tuple[list[Reply], bool]:
    """Return the answers of a worker until it rests, and whether it is alive."""
    replies = list[Reply]()
    try:
        while "resting" not in (reply := worker.hear()):
            replies.append(reply)
    except Died:
        return replies, False
    return replies, True


def all_points(setup: Setup, folder: Path) -> list[Point]:
    """Return the points of an operation without a fault, in the main thread and the threads that write.

    Threads that only read change nothing, and which of them gets work differs from run to run.
    """
    with (
        setup.begin(folder / "dry") as (worker, promises, _),
        watching(worker, folder / "calls") as calls,
    ):
        setup.perform(worker, promises)
        replies, _ = until_rest(worker)
        assert not any("error" in reply for reply in replies), replies
    writers = {call.thread for call in calls if call.name not in (*TELLING, "openat")}
    return points(
        call for call in calls if call.thread == 0 or (call.thread in writers and call.name not in TELLING)
    )


def kill_at(point: Point, setup: Setup, copy: Path) -> tuple[bool, list[str]]:
    """Kill a worker at a point of an operation; return whether it was reached, and what was broken."""
    with setup.begin(copy) as (worker, promises, url):
        with killing(worker, point):
            setup.perform(worker, promises)
            replies, lives = until_rest(worker)
        promises.hear(replies)
        worker.kill()
    return not lives, [
        f"{point}: {what}" for what in examine(setup.fork_server, url, setup.session, promises)
    ]


def sweep(
    setup: Setup, folder: Path, chosen: Callable[[list[Point]], list[Point]]
) -> tuple[int, list[Point], list[str]]:
    """Kill at points of an operation; return the number of kills, the missed points, and what was broken."""
    kills, missed, broken = 0, list[Point](), list[str]()
    for point in chosen(all_points(setup, folder)):
        reached, wrong = kill_at(point, setup, folder / "run")
        kills, broken = kills + reached, broken + wrong
        missed += [] if reached else [point]
    return kills, missed, broken


def some(points: list[Point]) -> list[Point]:
    """Return all points in the long version, some at random in the quick one."""
    return points if LONG or len(points) <= QUICK else rng("kills").sample(points, QUICK)


@pytest.mark.req("G6")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_any_system_call_leaves_all_of_an_append_or_nothing(
    name: str, fork_server: ForkServer, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    operation = OPERATIONS[name]
    kills, missed, broken = sweep(
        prepare(fork_server, folder, operation),
        folder,
        list if operation in (APPEND, APPEND_IN_LOOP) else some,
    )
    report(record_property, f"killed in {name}", kills=kills, not_met=len(missed), lost=losses(broken))
    assert broken == []
    assert missed == [] or operation.fills_log


PLANTED = [
    ("acks first", "lost: x"),
    ("appends in two", "torn: x"),
    ("keeps keys later", "an entry has no key"),
]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("plant", "complaint"), PLANTED)
def test_a_planted_bug_is_caught(plant: str, complaint: str, fork_server: ForkServer, folder: Path) -> None:
    setup = prepare(fork_server, folder, plant=plant)
    assert any(
        complaint in what
        for point in all_points(setup, folder)
        for what in kill_at(point, setup, folder / "run")[1]
    )


def test_a_worker_that_dies_before_its_operation_leaves_nothing_open(
    fork_server: ForkServer, folder: Path
) -> None:
    setup = replace(prepare(fork_server, folder), plant="no such bug")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(Died), setup.begin(folder / "run"):
        pass
    assert {*os.listdir("/proc/self/fd")} <= {*before}
