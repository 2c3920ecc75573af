"""Paths: numbers go on over forks, and a path is the runs of entries that lead to a head."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.log.path import between, spans
from turnstate.stores.values import BranchRow, Position, Span


def branch(id: int, parent: int | None = None, fork_seq: int = 0) -> BranchRow:
    return BranchRow(id=id, parent=parent, fork_seq=fork_seq, created=0)


ROOT = branch(1)


def test_a_root_is_one_span_from_one_on() -> None:
    assert spans([ROOT], Position(1, 7)) == [Span(1, 1, 7)]


def test_nothing_was_said_yet() -> None:
    assert spans([ROOT], Position(1, 0)) == []


def test_a_fork_goes_on_behind_its_parent() -> None:
    assert spans([ROOT, branch(2, 1, 4)], Position(2, 9)) == [Span(2, 5, 9), Span(1, 1, 4)]


def test_a_fork_in_which_nothing_was_said_is_its_parents_path() -> None:
    assert spans([ROOT, branch(2, 1, 4)], Position(2, 4)) == [Span(1, 1, 4)]


def test_a_fork_behind_an_entry_of_its_parents_parent_crosses_the_parent_without_a_span() -> None:
    branches = [ROOT, branch(2, 1, 4), branch(3, 2, 3)]
    assert spans(branches, Position(3, 5)) == [Span(3, 4, 5), Span(1, 1, 3)]


def test_a_second_root_has_nothing_of_the_first() -> None:
    assert spans([ROOT, branch(2)], Position(2, 3)) == [Span(2, 1, 3)]


def test_a_part_of_a_path_is_clipped_at_both_ends() -> None:
    path = [Span(3, 8, 12), Span(2, 5, 7), Span(1, 1, 4)]
    assert between(path, 3, 9) == [Span(3, 8, 9), Span(2, 5, 7), Span(1, 3, 4)]
    assert between(path, 6, 6) == [Span(2, 6, 6)]
    assert between(path, 1, 0) == []
    assert between(path, 13, 99) == []


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[BranchRow], dict[int, int]]:
    """Draw branches that fork anywhere on earlier ones, and the last number of each."""
    branches, tips = [ROOT], {1: draw(st.integers(0, 6))}
    for id in range(2, draw(st.integers(2, 7))):
        parent = draw(st.none() | st.sampled_from(branches))
        fork_seq = draw(st.integers(0, tips[parent.id])) if parent else 0
        branches.append(branch(id, parent.id if parent else None, fork_seq))
        tips[id] = fork_seq + draw(st.integers(0, 4))
    return branches, tips


@pytest.mark.req("A7")
@given(trees())
def test_on_every_path_each_number_stands_once(tree: tuple[list[BranchRow], dict[int, int]]) -> None:
    branches, tips = tree
    for one in branches:
        for seq in range(one.fork_seq, tips[one.id] + 1):
            path = spans(branches, Position(one.id, seq))
            numbers = [n for span in reversed(path) for n in range(span.first, span.last + 1)]
            assert numbers == list(range(1, seq + 1))
            known = {branch.id: branch for branch in branches}
            assert all(
                known[span.branch].fork_seq < span.first <= span.last <= tips[span.branch] for span in path
            )
