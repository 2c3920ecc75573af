"""Snapshots are written at most so often, and the last change is never forgotten."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.snapshots import SnapshotPace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.req("H2")
def test_the_first_change_is_due_at_once(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    assert not pace.due()
    assert pace.wait() is None
    pace.changed()
    assert pace.due()
    assert pace.wait() == 0


@pytest.mark.req("H2")
def test_the_next_is_due_only_after_the_interval(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    pace.changed()
    pace.begin()
    pace.changed()
    clock.now += 4
    assert (pace.due(), pace.wait(), pace.pending) == (False, 1, True)
    clock.now += 1
    assert (pace.due(), pace.wait()) == (True, 0)


@pytest.mark.req("H2")
def test_nothing_is_due_when_nothing_changed(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    pace.changed()
    pace.begin()
    clock.now += 1_000
    assert (pace.due(), pace.pending, pace.wait()) == (False, False, None)


@pytest.mark.req("H2")
def test_what_changes_while_a_snapshot_is_written_is_pending(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    pace.changed()
    pace.begin()
    pace.changed()
    assert pace.pending


def test_a_failed_write_is_tried_again_after_the_interval(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    pace.changed()
    pace.begin()
    pace.changed()
    assert not pace.due()
    clock.now += 5
    assert pace.due()


def test_a_clock_that_runs_backwards_delays_nothing(clock: Clock) -> None:
    pace = SnapshotPace(5, clock=clock)
    pace.changed()
    pace.begin()
    pace.changed()
    clock.now -= 1_000
    assert pace.due()


def test_no_interval_means_after_every_change(clock: Clock) -> None:
    pace = SnapshotPace(0, clock=clock)
    for _ in range(3):
        pace.changed()
        assert pace.due()
        pace.begin()


@pytest.mark.req("H2")
@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=100))
def test_writes_are_never_closer_than_the_interval_and_the_last_state_is_written(
    steps: list[tuple[float, bool]],
) -> None:
    clock = Clock()
    pace = SnapshotPace(2, clock=clock)
    state, written, times = 0, 0, list[float]()
    for passed, change in steps:
        clock.now += passed
        if change:
            state += 1
            pace.changed()
        if pace.due():
            pace.begin()
            written, times = state, [*times, clock.now]
    if pace.pending:
        written = state
    assert written == state
    assert all(later - earlier >= 2 - 1e-9 for earlier, later in pairwise(times))
