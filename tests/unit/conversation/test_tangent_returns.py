"""Coming back from a tangent with the tail or a summary; tangents in tangents, and from the past."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.conversation.conversation_fixtures import (
    call,
    compact,
    prompts,
    result,
    seen,
    spoken,
    talk,
    tool,
    validate,
    work,
)
from turnstate import Message
from turnstate.conversation import ConversationState, ToolOrigin, from_json, to_json
from turnstate.errors import NotFound


def calling(state: ConversationState) -> None:
    state.set_next_user_message("Look.")
    state.push_assistant_message(Message.assistant(tool_calls=[call()]))


def waiting(state: ConversationState) -> None:
    state.set_next_user_message("Hello?")


@pytest.mark.req("J3")
def test_the_tail_is_the_last_exchange_with_new_ids_and_its_origin() -> None:
    state = spoken()
    before = state.messages
    state.enter_tangent_mode()
    talk(state, "aside", "further")
    last = state.history[-1]
    state.exit_tangent_mode_with_tail()
    assert prompts(state) == ["one", "two", "further"]
    assert state.messages[:4] == before
    copies, originals = state.messages[4:], [*last.user.messages, last.assistant]
    assert [copy.extra for copy in copies] == [{"origin": one.id} for one in originals]
    assert not {copy.id for copy in copies} & {one.id for one in originals}
    assert [(copy.role, copy.content) for copy in copies] == [(one.role, one.content) for one in originals]
    assert state.transcript[-2:] == ["> further", "answer to further\n[Tool uses: none]"]


def last_exchange(state: ConversationState) -> list[str]:
    """Return the newest turn as roles and what was called or answered."""
    told = [message.role for message in state.messages]
    return told[len(told) - told[::-1].index("user") - 1 :]


@pytest.mark.req("J3", "A8")
def test_a_tail_that_answers_tool_results_brings_the_calls_and_the_question() -> None:
    state = spoken()
    state.enter_tangent_mode()
    work(state, "Look.", call("ls"), call("cat"))
    state.exit_tangent_mode_with_tail()
    assert last_exchange(state) == ["user", "assistant", "tool", "assistant"]
    asked, calls, results, answer = state.messages[4:]
    assert (asked.text, answer.text) == ("Look.", "answer to Look.")
    assert [one.name for one in calls.tool_calls] == ["cat"]
    assert [one.tool_call_id for one in results.tool_results] == [one.id for one in calls.tool_calls]
    state.set_next_user_message("and?")
    window = state.window()
    validate(window)
    assert [message.id for message in window.messages[1:]] == [message.id for message in state.messages]


@pytest.mark.req("J3", "A8")
def test_a_tail_whose_calls_were_under_way_is_answered_visibly() -> None:
    state = spoken()
    state.enter_tangent_mode()
    calling(state)
    state.exit_tangent_mode_with_tail()
    assert [message.role for message in state.messages[4:]] == ["user", "assistant", "tool"]
    assert [one.is_error for one in state.messages[-1].tool_results] == [True]
    state.set_next_user_message("and?")
    validate(state.window())
    assert not state.window().decisions


@pytest.mark.req("J3", "A8")
@pytest.mark.parametrize("what", [waiting, calling])
def test_a_tail_goes_on_from_what_waits_in_the_main_conversation(
    what: Callable[[ConversationState], None],
) -> None:
    state = spoken()
    what(state)
    before = state.messages
    state.enter_tangent_mode()
    talk(state, "aside")
    inside = [(message.role, message.content) for message in state.messages]
    state.exit_tangent_mode_with_tail()
    assert state.messages[: len(before)] == before
    assert [(message.role, message.content) for message in state.messages] == inside
    state.set_next_user_message("and?")
    validate(state.window())
    assert not state.window().decisions


@pytest.mark.req("J3")
def test_a_tail_of_results_for_calls_of_the_main_conversation_answers_those() -> None:
    state = spoken()
    state.set_next_user_message("Look.")
    one = call()
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    state.enter_tangent_mode()
    state.add_tool_results([result(one, "found")])
    state.push_assistant_message(Message.assistant("It is there."))
    state.exit_tangent_mode_with_tail()
    assert [message.role for message in state.messages[4:]] == ["user", "assistant", "tool", "assistant"]
    assert state.messages[6].tool_results == (result(one, "found"),)
    state.set_next_user_message("and?")
    validate(state.window())
    assert not state.window().decisions


@pytest.mark.req("J3")
def test_the_answer_to_a_question_of_the_main_conversation_comes_back_alone() -> None:
    state = spoken()
    state.set_next_user_message("three")
    state.enter_tangent_mode()
    state.push_assistant_message(Message.assistant("3"))
    state.exit_tangent_mode_with_tail()
    assert prompts(state) == ["one", "two", "three"]
    assert state.history[-1].assistant.text == "3"
    assert state.next_message is None


@pytest.mark.req("J3", "D5")
def test_a_tail_survives_a_compaction_inside_the_tangent() -> None:
    state = spoken()
    state.enter_tangent_mode()
    talk(state, "aside", "further")
    compact(state, 0)
    state.exit_tangent_mode_with_tail()
    assert prompts(state) == ["one", "two", "further"]
    assert state.valid_history_range == (0, 3)
    assert state.latest_summary is None
    state.set_next_user_message("and?")
    validate(state.window())


@pytest.mark.req("J4")
def test_tangents_nest_and_are_left_one_by_one() -> None:
    state = spoken()
    views = [seen(state)]
    state.begin_tangent()
    talk(state, "aside")
    views.append(msgspec.json.encode(state.history))
    state.begin_tangent()
    talk(state, "further aside")
    assert prompts(state) == ["one", "two", "aside", "further aside"]
    state.exit_tangent_mode()
    assert state.is_in_tangent_mode()
    assert msgspec.json.encode(state.history) == views[1]
    state.exit_tangent_mode()
    assert seen(state) == views[0]
    assert [one.opening for one in state.kept_tangents()] == ["aside", "further aside"]


@pytest.mark.req("J4")
def test_from_a_nested_tangent_the_main_conversation_is_still_known() -> None:
    state = spoken()
    main = state.history
    state.begin_tangent()
    talk(state, "aside")
    state.begin_tangent()
    talk(state, "further aside")
    assert state.tangent_state is not None
    assert state.tangent_state.main_history == main


@pytest.mark.req("J4")
def test_a_tangent_can_start_from_any_past_message() -> None:
    state = spoken()
    talk(state, "three")
    main = seen(state)
    state.begin_tangent(at=state.messages[1].id)
    assert prompts(state) == ["one"]
    talk(state, "instead of two")
    state.set_next_user_message("and?")
    validate(state.window())
    assert prompts(state) == ["one", "instead of two"]
    state.exit_tangent_mode()
    assert seen(state) == main


@pytest.mark.req("J4")
def test_a_tangent_from_a_past_question_waits_with_it() -> None:
    state = spoken()
    state.begin_tangent(at=state.messages[2].id)
    assert state.next_message is not None
    assert state.next_message.prompt == "two"
    state.push_assistant_message(Message.assistant("another answer"))
    state.exit_tangent_mode_with_tail()
    assert prompts(state) == ["one", "two", "two"]
    assert state.history[-1].assistant.text == "another answer"
    state.set_next_user_message("and?")
    validate(state.window())


@pytest.mark.req("J4")
def test_a_tangent_never_starts_inside_a_group_of_calls_and_results() -> None:
    state = spoken()
    work(state, "Look.", call("ls"))
    asked, calls, results, _ = state.messages[4:]
    for at, history in ((calls.id, 2), (results.id, 3)):
        state.begin_tangent(at=at)
        assert len(state.history) == history
        assert state.next_message is not None
        expected = asked if at == calls.id else results
        assert state.next_message.messages == (expected,)
        state.set_next_user_message("and?")
        validate(state.window())
        state.exit_tangent_mode()


@pytest.mark.req("J4")
def test_a_tangent_from_a_message_that_is_not_there_is_refused() -> None:
    state = spoken()
    before = to_json(state)
    with pytest.raises(NotFound):
        state.begin_tangent(at="nowhere")
    assert to_json(state) == before


@pytest.mark.req("J4")
def test_a_tangent_from_a_past_point_has_the_prompt_and_the_tools_of_that_point() -> None:
    state = spoken()
    state.set_system("You keep a zoo.")
    state.tools = {ToolOrigin("builtin"): [tool("feed")]}
    talk(state, "three")
    state.begin_tangent(at=state.messages[1].id)
    assert state.tools == {}
    assert state.preview().messages[0].text == "You keep a lighthouse."
    state.exit_tangent_mode()
    assert state.tools == {ToolOrigin("builtin"): [tool("feed")]}
    assert state.preview().messages[0].text == "You keep a zoo."


@pytest.mark.req("J4")
def test_a_tangent_can_return_with_a_given_summary() -> None:
    state = spoken()
    state.enter_tangent_mode()
    talk(state, "aside")
    state.exit_tangent_mode_with_summary("The lamp is out of oil.")
    assert state.next_message is not None
    assert state.next_message.prompt is not None
    assert "The lamp is out of oil." in state.next_message.prompt
    assert prompts(state) == ["one", "two"]
    validate(state.window())


@pytest.mark.req("J4")
def test_a_tangent_can_return_with_a_digest_that_code_writes() -> None:
    state = spoken()
    state.enter_tangent_mode()
    work(state, "Is there oil?", call("read_log", path="towers/north.log"))
    state.exit_tangent_mode_with_summary()
    assert state.next_message is not None
    told = state.next_message.prompt or ""
    assert "Is there oil?" in told
    assert "read_log" in told
    assert "towers/north.log" in told


@pytest.mark.req("J4")
def test_an_empty_summary_brings_nothing_back() -> None:
    state = spoken()
    before = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside")
    state.exit_tangent_mode_with_summary("  ")
    assert seen(state) == before


@pytest.mark.req("J4", "I9")
def test_nested_tangents_from_past_points_survive_json() -> None:
    state = spoken()
    talk(state, "three")
    state.begin_tangent(at=state.messages[1].id)
    talk(state, "aside", "further")
    state.begin_tangent(at=state.messages[3].id)
    talk(state, "inner")
    restored = from_json(to_json(state))
    for expected in (["one", "aside", "inner"], ["one", "aside", "further"], ["one", "two", "three"]):
        assert prompts(restored) == prompts(state) == expected
        assert seen(restored) == seen(state)
        restored.exit_tangent_mode()
        state.exit_tangent_mode()


@pytest.mark.req("J2")
def test_a_tangent_in_which_a_clearing_was_undone_is_listed_with_its_first_words() -> None:
    state = spoken()
    state.begin_tangent()
    talk(state, "aside")
    state.set_next_user_message("waiting")
    state.clear()
    talk(state, "new")
    assert state.undo() == "clear"
    state.exit_tangent_mode()
    (kept,) = state.kept_tangents()
    assert kept.opening == "aside"
    state.reopen_tangent(kept.name)
    assert prompts(state)[2:] == ["aside", "waiting\n\nnew"]


@pytest.mark.req("J2", "J4")
def test_a_tangent_is_listed_even_if_nothing_was_said_in_the_one_around_it() -> None:
    state = spoken()
    for _ in range(3):
        state.begin_tangent()
    talk(state, "deep")
    for _ in range(3):
        state.exit_tangent_mode()
    (kept,) = state.kept_tangents()
    assert kept.opening == "deep"
    state.reopen_tangent(kept.name)
    assert prompts(state) == ["one", "two", "deep"]
    assert len(state.open_tangents) == 3
