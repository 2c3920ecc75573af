"""Clearing and compacting a state: out of sight, not out of the log, and back with `undo`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.conversation.conversation_fixtures import call, prompts, result, talk, validate, work
from turnstate import Budget, Message
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, fields, from_json, to_json
from turnstate.errors import InputError, NothingToUndo
from turnstate.message import ToolCallRequest


def spoken() -> ConversationState:
    state = ConversationState("c")
    state.set_system("You keep a lighthouse.")
    work(state, "Look.", call("ls"))
    talk(state, "one", "two", "three")
    return state


def seen(state: ConversationState) -> bytes:
    """Return the next request and the fields as bytes."""
    return msgspec.json.encode([state.preview().messages, fields(state)])


@pytest.mark.req("I8")
def test_clear_empties_history_summary_and_next_message_and_keeps_prompt_and_transcript() -> None:
    state = spoken()
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan)
    state.set_next_user_message("four")
    lines = state.transcript
    state.clear()
    assert (state.history, state.latest_summary, state.next_message) == ([], None, None)
    assert state.valid_history_range == (0, 0)
    assert state.transcript == lines
    assert [message.text for message in state.window().messages] == ["You keep a lighthouse."]
    assert len(state.messages) == 11


@pytest.mark.req("I8")
def test_after_a_clearing_the_conversation_goes_on_without_a_summary() -> None:
    state = spoken()
    state.clear()
    talk(state, "new")
    state.set_next_user_message("and?")
    assert prompts(state) == ["new"]
    shown = [message.text for message in state.window().messages]
    assert shown == ["You keep a lighthouse.", "new", "answer to new", "and?"]
    validate(state.window())


@pytest.mark.req("I8")
def test_undo_brings_back_what_was_cleared_byte_for_byte() -> None:
    state = spoken()
    state.set_next_user_message("four")
    before = seen(state)
    state.clear()
    assert seen(state) != before
    assert state.undo() == "clear"
    assert seen(state) == before


@pytest.mark.req("I8")
def test_undo_after_more_was_said_shows_both() -> None:
    state = spoken()
    state.clear()
    talk(state, "new")
    state.undo()
    assert prompts(state) == ["Look.", None, "one", "two", "three", "new"]
    validate(state.window())


@pytest.mark.req("I8")
def test_two_clearings_are_undone_one_after_the_other() -> None:
    state = spoken()
    state.clear()
    talk(state, "new")
    second = seen(state)
    state.clear()
    assert state.undo() == "clear"
    assert seen(state) == second
    assert state.undo() == "clear"
    assert prompts(state) == ["Look.", None, "one", "two", "three", "new"]
    with pytest.raises(NothingToUndo, match="nothing to undo"):
        state.undo()


@pytest.mark.req("I8", "I3")
def test_a_clearing_cancels_calls_that_are_under_way() -> None:
    state = spoken()
    one = call()
    state.set_next_user_message("Look again.")
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    state.clear()
    assert state.shown.open_calls == []
    talk(state, "new")
    validate(state.window())
    state.undo()
    state.set_next_user_message("and?")
    validate(state.window())


@pytest.mark.req("I8")
def test_clearing_an_empty_conversation_does_nothing() -> None:
    state = ConversationState("c")
    state.clear()
    assert state.log.head.seq == 0
    with pytest.raises(NothingToUndo, match="nothing to undo"):
        state.undo()


@pytest.mark.req("I8", "I9")
def test_what_was_cleared_comes_back_after_json_as_well() -> None:
    state = spoken()
    before = seen(state)
    state.clear()
    restored = from_json(to_json(state))
    assert seen(restored) == seen(state)
    restored.undo()
    assert seen(restored) == before


@pytest.mark.req("D5")
def test_a_compaction_leaves_one_summary_and_what_it_was_asked_to_keep() -> None:
    state = spoken()
    plan = state.plan_compaction(Strategy(keep=2), focus="the lamp")
    assert plan is not None
    state.set_next_user_message("four")
    cut = state.compact(plan, "Goal: keep the lamp lit.", source={"model": "gpt-4o"})
    shown = state.window().messages
    assert [message.kind or message.role for message in shown] == [
        "prompt",
        "summary",
        *["user", "assistant"] * 2,
        "user",
    ]
    assert "Goal: keep the lamp lit." in shown[1].text
    validate(state.window())
    assert state.latest_summary is not None
    text, known = state.latest_summary
    assert (text, known.model) == ("Goal: keep the lamp lit.", "gpt-4o")
    spent = {key: known.details[key] for key in ("before", "after")}
    assert spent["after"] < spent["before"]
    assert known.details == {"operation": "compact", "keep": 2, "focus": "the lamp", **spent}
    messages = state.messages
    assert cut.covers == (messages[0].id, messages[5].id)


@pytest.mark.req("D4", "D5")
def test_a_summary_that_says_nothing_or_too_much_is_refused() -> None:
    state = spoken()
    plan = state.plan_compaction(Strategy(keep=2))
    assert plan is not None
    before = seen(state)
    for summary, why in (
        ("", "says nothing"),
        (" \n…", "says nothing"),
        ("word " * 200, "has 2.. tokens, and"),
    ):
        with pytest.raises(InputError, match=why):
            state.compact(plan, summary)
        assert seen(state) == before
    state.compact(plan, "Goal: keep the lamp lit.")


@pytest.mark.req("D5")
def test_a_plan_of_another_view_is_refused() -> None:
    def cleared(state: ConversationState) -> None:
        state.clear()

    def compacted(state: ConversationState) -> None:
        again = state.plan_compaction(Strategy(keep=1))
        assert again is not None
        state.compact(again)

    def moved(state: ConversationState) -> None:
        state.begin_tangent(at=state.messages[1].id)

    for change in (cleared, compacted, moved):
        state = spoken()
        plan = state.plan_compaction(Strategy(keep=2))
        assert plan is not None
        change(state)
        before = seen(state)
        with pytest.raises(InputError, match="plan it again"):
            state.compact(plan)
        assert seen(state) == before


@pytest.mark.req("D5")
def test_without_a_model_the_digest_is_the_summary() -> None:
    state = spoken()
    plan = state.plan_compaction()
    assert plan is not None
    state.compact(plan)
    assert state.latest_summary is not None
    assert state.latest_summary[0] == plan.cut.summary
    assert "Look." in state.latest_summary[0]


@pytest.mark.req("D5")
@pytest.mark.parametrize("summary", [None, "Goal: keep the lamp lit."])
def test_undo_of_a_compaction_brings_the_view_back_byte_for_byte(summary: str | None) -> None:
    state = spoken()
    before = seen(state)
    plan = state.plan_compaction(Strategy(keep=1))
    assert plan is not None
    state.compact(plan, summary)
    assert seen(state) != before
    assert state.undo() == "compact"
    assert seen(state) == before


@pytest.mark.req("D5")
def test_undo_also_takes_back_what_was_decided_on_top_of_a_compaction() -> None:
    state = spoken()
    talk(state, *(f"question {number} " + "word " * 60 for number in range(12)))
    first = state.preview(Budget(1_000)).messages
    plan = state.plan_compaction(Strategy(keep=8))
    assert plan is not None
    state.compact(plan)
    assert state.window(Budget(500)).decisions
    state.undo()
    assert state.preview(Budget(1_000)).messages == first
    assert state.valid_history_range == (0, len(state.history))


@pytest.mark.req("D5")
def test_a_second_compaction_folds_the_first_and_both_are_undone_in_turn() -> None:
    state = spoken()
    states = [seen(state)]
    for keep in (3, 1):
        plan = state.plan_compaction(Strategy(keep=keep))
        assert plan is not None
        state.compact(plan)
        states.append(seen(state))
    assert sum(message.kind == "summary" for message in state.window().messages) == 1
    state.undo()
    assert seen(state) == states[1]
    state.undo()
    assert seen(state) == states[0]


@pytest.mark.req("D5")
@pytest.mark.parametrize("keep", [2, 5, 100])
def test_a_conversation_that_is_no_longer_than_what_is_kept_is_not_compacted(keep: int) -> None:
    state = ConversationState("c")
    talk(state, "one", "two")
    assert state.plan_compaction(Strategy(keep=keep)) is None


@pytest.mark.req("D5")
def test_a_state_that_is_over_the_budget_is_compacted_from_its_beginning() -> None:
    state = ConversationState("c")
    talk(state, *(f"question {number} " + "word " * 60 for number in range(40)))
    plan = state.plan_compaction(Strategy(keep=2), budget=Budget(1_000))
    assert plan is not None
    assert list(plan.evicted) == state.messages[:76]
    assert state.preview().decisions == ()


def under_way(state: ConversationState, one: ToolCallRequest) -> None:
    state.push_assistant_message(Message.assistant(tool_calls=[one]))


def half_answered(state: ConversationState, one: ToolCallRequest) -> None:
    other = call("cat")
    state.push_assistant_message(Message.assistant(tool_calls=[one, other]))
    state.add_tool_results([result(other)])


def answered(state: ConversationState, one: ToolCallRequest) -> None:
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    state.add_tool_results([result(one)])


@pytest.mark.req("D5")
@pytest.mark.parametrize("scene", [under_way, half_answered, answered])
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_what_was_not_answered_yet_is_never_compacted(
    scene: Callable[[ConversationState, ToolCallRequest], None], keep: int
) -> None:
    state = spoken()
    asked = state.set_next_user_message("Look again.")
    one = call()
    scene(state, one)
    plan = state.plan_compaction(Strategy(keep=keep))
    assert plan is not None
    state.compact(plan)
    window = state.window()
    shown = [message.id for message in window.messages]
    assert asked.id in shown
    assert one in [made for message in window.messages for made in message.tool_calls]
    validate(window)


@pytest.mark.req("D5")
@pytest.mark.parametrize("wrong", [{"keep": -1}, {"keep": 1.5}, {"keep": True}, {"longest": 0}])
def test_a_strategy_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Strategy(**wrong)  # type: ignore[arg-type]


@pytest.mark.req("A5", "I8")
def test_a_clearing_hides_a_late_result_that_came_before_it() -> None:
    state = spoken()
    state.set_next_user_message("go")
    late = call("slow")
    state.push_assistant_message(Message.assistant(tool_calls=[late]))
    state.clear()
    state.add_tool_results([result(late, "late")])
    assert state.preview().messages[-1].text.endswith("late")
    before = seen(state)
    state.clear()
    assert [message.text for message in state.preview().messages] == ["You keep a lighthouse."]
    assert state.undo() == "clear"
    assert seen(state) == before


@pytest.mark.req("A5")
def test_a_tangent_begins_behind_an_answer_of_the_core() -> None:
    state = spoken()
    state.set_next_user_message("go")
    state.push_assistant_message(Message.assistant(tool_calls=[call("slow")]))
    state.set_next_user_message("never mind")
    answer = state.messages[-2]
    state.begin_tangent(at=answer.id)
    assert state.messages[-1] == answer
