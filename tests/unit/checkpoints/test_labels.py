"""Labels and descriptions of checkpoints, as they follow from what is on the path."""

from __future__ import annotations

import pytest

from turnstate.checkpoints.labels import ASIDE, IN_PROGRESS, INTERRUPTED, Numbers, description, numbers, turns
from turnstate.conversation import ConversationState
from turnstate.entry import Checkpoint

pytestmark = pytest.mark.req("O2")


def path(*labels: str) -> list[Checkpoint]:
    """Make checkpoints of these labels; one with a dot is a tool's."""
    return [
        Checkpoint(label=label, commit=f"commit of {label}", description=f"about {label}", tool=_tool(label))
        for label in labels
    ]


def _tool(label: str) -> str | None:
    return "write" if "." in label else None


@pytest.mark.parametrize(
    ("labels", "tool", "turn"),
    [
        ([], "1.1", "1"),
        (["0"], "1.1", "1"),
        (["0", "1.1"], "1.2", "1"),
        (["0", "1.1", "1.2"], "1.3", "1"),
        (["0", "1.1", "1.2", "1"], "2.1", "2"),
        (["0", "1.1", "1", "2"], "3.1", "3"),
        (["0", "1.1", ASIDE], "1.2", "1"),
        (["0", "1.1", "1", ASIDE, "2.1"], "2.2", "2"),
        (["57.3"], "57.4", "57"),
        (["57"], "58.1", "58"),
        (["0", "strange", "1.1", "1.x"], "1.2", "1"),
    ],
)
def test_numbers_count_on_from_the_path(labels: list[str], tool: str, turn: str) -> None:
    found = numbers(path(*labels))
    assert (found.next_tool, found.next_turn) == (tool, turn)


def test_a_turn_that_was_interrupted_keeps_its_number_and_the_next_has_the_next() -> None:
    begun = path("0", "1.1", "1.2")
    found = numbers(begun, interrupted=True)
    assert (found.next_tool, found.next_turn) == ("2.1", "2")
    assert numbers(path("0", "1.1", "1"), interrupted=True).next_tool == "2.1"
    assert [(turn.label, turn.description) for turn in turns(begun, interrupted=True)][-1] == (
        "1",
        INTERRUPTED,
    )
    all_turns = turns(path("0", "1.1", "1.2", "2.1", "2", "3.1", "4.1"))
    assert [(turn.label, turn.done, len(turn.tools), turn.description) for turn in all_turns[1:]] == [
        ("1", False, 2, INTERRUPTED),
        ("2", True, 1, "about 2"),
        ("3", False, 1, INTERRUPTED),
        ("4", False, 1, IN_PROGRESS),
    ]


def test_the_start_is_no_turn_and_a_tangent_is_none() -> None:
    assert numbers(path("0", ASIDE)) == Numbers(0, 0)


def test_a_turn_has_the_tools_that_came_before_it() -> None:
    found = turns(path("0", "1.1", "1.2", "1", "2.1", "2"))
    assert [(turn.label, [one.label for one in turn.tools]) for turn in found] == [
        ("0", []),
        ("1", ["1.1", "1.2"]),
        ("2", ["2.1"]),
    ]
    assert all(turn.done for turn in found)
    assert found[1].commit == "commit of 1"


def test_the_turn_under_way_shows_its_last_tool() -> None:
    *_, turn = turns(path("0", "1.1", "1", "2.1", "2.2"))
    assert (turn.label, turn.description, turn.commit, turn.done) == (
        "2",
        IN_PROGRESS,
        "commit of 2.2",
        False,
    )
    assert [one.label for one in turn.tools] == ["2.1", "2.2"]


def test_a_tangent_that_begins_in_a_turn_does_not_part_it() -> None:
    found = turns(path("0", "1.1", ASIDE, "1.2"))
    assert [(turn.label, len(turn.tools)) for turn in found] == [("0", 0), (ASIDE, 0), ("1", 2)]


def test_what_stands_before_the_newest_start_is_not_counted() -> None:
    for labels, wanted in (
        (("0", "1.1", "1", "0", "1.1"), [(4, "0"), (5, "1.1")]),
        (("4.1", "4"), [(1, "4.1"), (2, "4")]),
    ):
        state = ConversationState("c")
        for one in path(*labels):
            state.add(one)
        found = state.shown.checkpoints_since_start
        assert [(place, one.label) for place, one in found] == wanted


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("short", "short"),
        ("", ""),
        ("  two\n lines\t", "two lines"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ("word " * 12 + "end", "word " * 11 + "word..."),
        ("a " + "x" * 80, "a..."),
        ("é" * 30, "é" * 30),
        ("é" * 31, "é" * 30 + "..."),
        ("x" + "é" * 40, "x" + "é" * 29 + "..."),
        ("日本 " * 20, ("日本 " * 8).strip() + "..."),
    ],
)
def test_a_description_is_cut_at_a_space_within_sixty_bytes(said: str, shown: str) -> None:
    assert description(said) == shown
    assert len(description(said).removesuffix("...").encode()) <= 60
