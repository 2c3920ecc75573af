"""Timelines that went back to a moment, or began at one: kept, listed, written as JSON, cheap to begin."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import exchanges, prompts, talk, validate
from turnstate import Message
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import NothingToUndo


def read_back(state: ConversationState) -> ConversationState:
    """Return the conversation that a state's document says, and fail if it shows something else."""
    restored = from_json(to_json(state))
    assert fields(restored) == fields(state)
    assert restored.kept_tangents() == state.kept_tangents()
    return restored


def moment(state: ConversationState) -> int:
    return len(state.head.entries)


@pytest.mark.req("I9", "J1")
def test_a_restore_inside_a_tangent_that_was_undone_and_left_can_be_written() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.begin_tangent()
    state.restore_moment(moment(state))
    talk(state, "x")
    state.undo_restore()
    state.exit_tangent_mode()
    assert prompts(read_back(state)) == ["a"]


@pytest.mark.req("I9", "J1")
def test_a_tangent_that_was_left_empty_keeps_what_a_restore_took_its_place_with() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.begin_tangent()
    state.restore_moment(moment(state))
    talk(state, "x")
    state.exit_tangent_mode()
    assert [(one.exchanges, one.opening) for one in state.kept_tangents()] == [(1, "x")]
    restored = read_back(state)
    restored.reopen_tangent(restored.kept_tangents()[0].name)
    assert prompts(restored) == ["a", "x"]
    restored.exit_tangent_mode()
    assert prompts(restored) == ["a"]


@pytest.mark.req("J2")
def test_a_tangent_that_a_restore_went_back_in_is_taken_up_where_it_was_left() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.begin_tangent()
    talk(state, "t1", "t2")
    state.restore_moment(moment(state) - 2)
    talk(state, "t3")
    state.exit_tangent_mode()
    for one in (state, read_back(state)):
        (kept,) = one.kept_tangents()
        assert (kept.exchanges, kept.opening) == (2, "t1")
        one.reopen_tangent(kept.name)
        assert prompts(one) == ["a", "t1", "t3"]


@pytest.mark.req("J2")
def test_a_tangent_whose_restore_was_undone_is_taken_up_where_it_was_left() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.begin_tangent()
    talk(state, "t1", "t2")
    state.restore_moment(moment(state) - 2)
    talk(state, "t3")
    state.undo_restore()
    assert prompts(state) == ["a", "t1", "t2"]
    state.exit_tangent_mode()
    for one in (state, read_back(state)):
        (kept,) = one.kept_tangents()
        one.reopen_tangent(kept.name)
        assert prompts(one) == ["a", "t1", "t2"]


@pytest.mark.req("J1")
def test_a_moment_before_a_tangent_began_is_outside_of_it() -> None:
    state = ConversationState("c")
    talk(state, "a", "b")
    before = moment(state) - 2
    state.begin_tangent()
    talk(state, "t")
    state.restore_moment(before)
    assert not state.is_in_tangent_mode()
    assert prompts(read_back(state)) == ["a"]
    state.undo_restore()
    assert prompts(read_back(state)) == ["a", "b", "t"]
    with pytest.raises(NothingToUndo, match="no restore"):
        state.undo_restore()


@pytest.mark.req("I1")
def test_a_clearing_that_is_undone_behind_a_fork_gives_back_what_waited() -> None:
    state = ConversationState("c")
    talk(state, "a")
    state.set_next_user_message("waiting")
    state.clear()
    talk(state, "b")
    state.begin_tangent()
    talk(state, "t")
    state.exit_tangent_mode()
    assert [state.undo() for _ in range(3)] == ["tangent exit", "tangent", "clear"]
    assert state.history[0].user.prompt == "a"
    assert [message.text for message in state.history[1].user.messages] == ["waiting", "b"]
    read_back(state)
    state.reopen_tangent(state.kept_tangents()[0].name)
    assert prompts(state) == ["b", "t"]
    read_back(state)


def work_of(do: Callable[[], object]) -> tuple[int, int]:
    """Count the calls that something makes, and the most memory that it takes."""
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return calls, peak


def past_tangent(count: int, back: int) -> tuple[int, int]:
    """Return the work of beginning a tangent so many exchanges back, in a conversation with so many."""
    state = ConversationState("c")
    state.head.extend(exchanges(count))
    past = state.history[-back].assistant.id
    state.begin_tangent(at=past)  # what is loaded once is loaded before
    state.exit_tangent_mode()
    return work_of(lambda: state.begin_tangent(at=past))


@pytest.mark.req("J2", "J4")
def test_a_tangent_from_the_past_is_no_more_work_behind_20_000_messages_than_behind_20() -> None:
    (few_calls, few_bytes), (many_calls, many_bytes) = past_tangent(10, 3), past_tangent(10_000, 3)
    assert many_calls < 3 * few_calls + 200  # to fold 10,000 exchanges again takes 100,000
    assert many_bytes < few_bytes + 20_000  # a list of 20,000 would take 160,000


@pytest.mark.req("J2", "J4")
def test_a_tangent_from_far_back_folds_nothing_again() -> None:
    (few_calls, _), (many_calls, many_bytes) = past_tangent(100, 50), past_tangent(10_000, 5_000)
    assert many_calls < 20_000 * 2 + few_calls  # it may look for the message, a call or two for each
    assert many_bytes < 2_000_000


def test_a_restore_folds_nothing_again() -> None:
    def restored(count: int) -> tuple[int, int]:
        state = ConversationState("c")
        state.head.extend(exchanges(count))
        state.restore_moment(moment(state) - 1)  # what is loaded once is loaded before
        return work_of(lambda: state.restore_moment(moment(state) - 1))

    (few_calls, few_bytes), (many_calls, many_bytes) = restored(10), restored(5_000)
    assert many_calls < few_calls + 50
    assert many_bytes < few_bytes + 20_000


Shown = list[tuple[str, int, dict[str, Any]]]


def eventful() -> tuple[ConversationState, Shown]:
    """Return a conversation with all that can happen, and what it showed after messages and entries."""
    state = ConversationState("c")
    shown = Shown()

    def note() -> None:
        shown.append((state.messages[-1].id, moment(state), fields(state)))

    state.set_system("Keep.")
    talk(state, "a", "b", "c")
    note()
    state.append_transcript("503")
    talk(state, "d")
    note()
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan, "Goal: light.")
    talk(state, "e")
    note()
    state.set_model("gpt-4o")
    state.set_next_user_message("waiting")
    note()
    state.clear()
    talk(state, "f")
    note()
    state.undo()
    talk(state, "g")
    note()
    state.clear()
    state.undo()
    talk(state, "h")
    note()
    return state, shown


@pytest.mark.req("J4")
@pytest.mark.parametrize("back", range(1, 8))
def test_a_tangent_from_the_past_shows_just_what_was_shown_then(back: int) -> None:
    state, shown = eventful()
    id, _, then = shown[-back]
    state.begin_tangent(at=id)
    assert {**fields(state), "tangent_state": None} == {**then, "tangent_state": None}
    restored = read_back(state)
    for one in (state, restored):
        talk(one, "aside")
        one.set_next_user_message("and?")
        validate(one.preview(), one)
    texts = [[message.text for message in one.preview().messages] for one in (state, restored)]
    assert texts[0] == texts[1]
    state.exit_tangent_mode()
    assert fields(state) == shown[-1][2]


@pytest.mark.parametrize("back", range(1, 8))
def test_a_restored_moment_shows_just_what_was_shown_then_and_leaves_the_rest_alone(back: int) -> None:
    state, shown = eventful()
    _, place, then = shown[-back]
    state.restore_moment(place)
    assert fields(state) == then
    restored = read_back(state)
    for one in (state, restored):
        one.append_transcript("restored")
        talk(one, "again")
    assert prompts(state) == prompts(restored)
    state.undo_restore()
    assert fields(state) == shown[-1][2]


@pytest.mark.req("J4", "I9")
def test_600_nested_tangents_are_written_as_json_and_read() -> None:
    state = ConversationState("c")
    talk(state, "a")
    for number in range(600):
        state.begin_tangent()
        state.append_transcript(f"level {number}")
    state.set_next_user_message("deep")
    state.push_assistant_message(Message.assistant("down here"))
    restored = read_back(state)
    assert prompts(restored) == ["a", "deep"]
    for _ in range(600):
        restored.exit_tangent_mode()
    assert not restored.is_in_tangent_mode()
    assert len(restored.kept_tangents()) == 600
