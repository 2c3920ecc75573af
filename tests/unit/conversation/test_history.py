"""History: exchanges, what waits to be sent, what may be sent, and the lines that people read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.state_cap import state_cap
from tests.unit.conversation.conversation_fixtures import (
    call,
    entry_of,
    exchanges,
    prompts,
    result,
    talk,
    tool,
    validate,
    work,
    write,
)
from turnstate import Budget, ImagePart, Message, TextPart, ToolCallRequest, ToolCallResult
from turnstate.context.cut import Strategy
from turnstate.conversation import (
    MAX_CONVERSATION_STATE_HISTORY_LEN,
    MAX_TRANSCRIPT_LEN,
    ConversationState,
    RequestMetadata,
    ToolOrigin,
    from_json,
    to_json,
)
from turnstate.entry import CANCELLED
from turnstate.errors import InvalidMessage


@pytest.mark.req("I3")
def test_an_entry_closes_at_each_message_of_the_assistant() -> None:
    state = ConversationState("c")
    asked = state.set_next_user_message("What is there?")
    one = call()
    calls = Message.assistant("Let me look.", tool_calls=[one])
    state.push_assistant_message(calls)
    found = state.add_tool_results([result(one, ["a", "b"])])
    answer = Message.assistant("Two files.")
    state.push_assistant_message(answer)
    assert state.history == [entry_of(asked, calls), entry_of(found, answer)]
    first, second = state.history
    assert (first.user.prompt, first.user.tool_use_results) == ("What is there?", ())
    assert (second.user.prompt, second.user.tool_use_results) == (None, found.tool_results)


@pytest.mark.req("I3")
def test_what_is_known_of_a_request_stands_beside_its_answer() -> None:
    state = ConversationState("c")
    state.set_next_user_message("hello")
    known = RequestMetadata(input=12, output=3, model="gpt-4o", details={"request_id": "r1"})
    entry = state.push_assistant_message(Message.assistant("hi"), known)
    assert entry.request_metadata == known
    assert state.history[0].request_metadata == known
    talk(state, "and without?")
    assert state.history[1].request_metadata is None


@pytest.mark.req("I3")
def test_pictures_are_found_among_the_words() -> None:
    state = ConversationState("c")
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    state.set_next_user_message([TextPart("What is this?"), picture])
    assert state.next_message is not None
    assert state.next_message.images == (picture,)
    assert state.next_message.prompt == "What is this?"


@pytest.mark.req("I3")
def test_the_next_message_waits_until_it_is_answered() -> None:
    state = ConversationState("c")
    assert state.next_message is None
    asked = state.set_next_user_message("hello")
    assert state.next_message is not None
    assert state.next_message.messages == (asked,)
    state.push_assistant_message(Message.assistant("hi"))
    assert state.next_message is None


@pytest.mark.req("I3")
def test_a_prompt_whose_request_failed_is_sent_again_with_the_next_one() -> None:
    state = ConversationState("c")
    state.set_next_user_message("first try")
    state.window()
    state.append_transcript("the provider gave 503")
    assert state.next_message is not None
    assert state.next_message.prompt == "first try"
    state.set_next_user_message("second try")
    assert [message.text for message in state.window().messages] == ["first try", "second try"]
    validate(state.window())
    state.push_assistant_message(Message.assistant("both"))
    assert prompts(state) == ["first try\n\nsecond try"]


@pytest.mark.req("I3", "I7")
def test_a_user_who_speaks_instead_of_waiting_cancels_the_calls_visibly() -> None:
    state = ConversationState("c")
    state.set_next_user_message("Delete it.")
    one, two = call("rm"), call("ls")
    state.push_assistant_message(Message.assistant(tool_calls=[one, two]))
    state.add_tool_results([result(two)])
    state.set_next_user_message("Stop!")
    assert state.next_message is not None
    assert state.next_message.tool_use_results == (
        result(two),
        ToolCallResult(tool_call_id=one.id, result=CANCELLED, is_error=True),
    )
    assert state.next_message.prompt == "Stop!"
    assert not state.next_message.opens_turn
    validate(state.window())


@pytest.mark.req("I3")
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda _: [ToolCallResult(tool_call_id="nobody", result=1)], id="unknown"),
        pytest.param(lambda one: [result(one), result(one, 2)], id="twice in one"),
    ],
)
def test_a_result_that_nobody_waits_for_is_refused_and_changes_nothing(wrong: Any) -> None:
    state = ConversationState("c")
    state.set_next_user_message("Look.")
    one = call()
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    before = to_json(state)
    with pytest.raises(InvalidMessage):
        state.add_tool_results(wrong(one))
    assert to_json(state) == before


@pytest.mark.req("I3")
def test_a_result_is_found_by_the_id_that_the_provider_gave() -> None:
    state = ConversationState("c")
    state.set_next_user_message("Look.")
    one = ToolCallRequest(name="ls", args={}, provider_id="toolu_1")
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    message = state.add_tool_results([ToolCallResult(tool_call_id="toolu_1", result=0)])
    assert [known.tool_call_id for known in message.tool_results] == [one.id]


@pytest.mark.req("I3")
def test_the_assistant_answers_only_what_was_said() -> None:
    state = ConversationState("c")
    with pytest.raises(InvalidMessage, match="no user message or tool result"):
        state.push_assistant_message(Message.assistant("Hello?"))
    state.set_next_user_message("hello")
    with pytest.raises(InvalidMessage, match="the assistant's message was expected"):
        state.push_assistant_message(Message.user("me again"))
    assert state.history == []


@pytest.mark.req("I4")
def test_of_10_001_exchanges_the_newest_10_000_are_live() -> None:
    state = ConversationState("c")
    write(state, *exchanges(10_001))
    assert MAX_CONVERSATION_STATE_HISTORY_LEN == 10_000
    assert len(state.history) == 10_000
    assert state.history[0].user.prompt == "question 1"
    assert state.valid_history_range == (0, 10_000)
    assert len(state.messages) == 20_002


@pytest.mark.req("I4")
@pytest.mark.parametrize(("a_turn", "first"), [(2, "question 2"), (7, "question 7")])
def test_the_live_history_begins_at_the_edge_of_a_turn(a_turn: int, first: str) -> None:
    state = ConversationState("c")
    write(state, *exchanges(10_001, a_turn=a_turn))
    assert len(state.history) <= 10_000
    assert state.history[0].user.opens_turn
    assert state.history[0].user.prompt == first


@pytest.mark.req("I4")
def test_a_single_turn_of_more_than_10_000_exchanges_is_cut_between_two_of_them() -> None:
    state = ConversationState("c")
    write(state, *exchanges(10_003, a_turn=20_000))
    assert len(state.history) == 10_000
    assert state.history[0].assistant.text == "answer 3"


@pytest.mark.req("I4", "I9")
def test_what_left_the_live_history_survives_json() -> None:
    with state_cap(1_000) as cap:
        state = ConversationState("c")
        write(state, *exchanges(cap + 1, a_turn=3))
        restored = from_json(to_json(state))
        assert len(state.messages) > len(state.history) == cap - 2
        assert restored.history == state.history
        assert restored.messages == state.messages


@pytest.mark.req("I4")
def test_over_the_cap_a_cut_says_from_where_windows_show_exchanges() -> None:
    with state_cap(5):
        state = ConversationState("c")
        talk(state, *map(str, range(5)))
        assert state.latest_summary is None
        talk(state, "5")
        assert state.latest_summary is not None
        assert state.latest_summary[1].details == {"operation": "cap"}
        shown = [message.text for message in state.window().messages if message.role == "user"]
        assert prompts(state)[-1] == "5"
        assert "0" not in shown
        assert shown[-1] == "5"


@pytest.mark.req("I5")
def test_the_valid_range_moves_with_the_budget() -> None:
    state = ConversationState("c")
    talk(state, *(f"question {number} " + "word " * 60 for number in range(40)))
    assert state.valid_history_range == (0, 40)
    state.set_next_user_message("and now?")
    window = state.window(Budget(2_000))
    start, end = state.valid_history_range
    assert end == 40
    assert start > 0
    shown = {message.id for message in window.messages}
    assert state.history[start].user.messages[0].id in shown
    assert state.history[start - 1].assistant.id not in shown


@pytest.mark.req("I5", "D5")
def test_the_valid_range_moves_with_a_compaction_and_back() -> None:
    state = ConversationState("c")
    talk(state, *map(str, range(10)))
    plan = state.plan_compaction(Strategy(keep=3))
    assert plan is not None
    state.compact(plan)
    assert state.valid_history_range == (7, 10)
    assert len(state.history) == 10
    state.undo()
    assert state.valid_history_range == (0, 10)


@pytest.mark.req("I5", "D5")
def test_a_compaction_that_keeps_nothing_leaves_an_empty_range() -> None:
    state = ConversationState("c")
    talk(state, *map(str, range(4)))
    plan = state.plan_compaction(Strategy(keep=0))
    assert plan is not None
    state.compact(plan)
    assert state.valid_history_range == (4, 4)
    talk(state, "next")
    assert state.valid_history_range == (4, 5)


@pytest.mark.req("I5")
@pytest.mark.parametrize("stored", [[0, 1], [5, 2], [0, 10**9], "everything", None])
def test_the_stored_range_is_never_trusted(stored: Any) -> None:
    state = ConversationState("c")
    talk(state, "one", "two", "three")
    assert from_json({**to_json(state), "valid_history_range": stored}).valid_history_range == (0, 3)


@pytest.mark.req("I6")
def test_each_line_of_a_prompt_is_prefixed_and_errors_are_included() -> None:
    state = ConversationState("c")
    work(state, "Look,\nthen tell.\n", call("ls"), call("cat"))
    state.append_transcript("the request failed: 503")
    assert state.transcript == [
        "> Look,\n> then tell.\n> ",
        "\n[Tool uses: ls]",
        "\n[Tool uses: cat]",
        "answer to Look,\nthen tell.\n\n[Tool uses: none]",
        "the request failed: 503",
    ]


@pytest.mark.req("I6")
def test_no_line_of_the_transcript_is_sent() -> None:
    state = ConversationState("c")
    talk(state, "hello")
    state.append_transcript("the request failed: 503")
    state.set_next_user_message("again")
    window = state.window()
    assert not any("503" in message.text or "> " in message.text for message in window.messages)


@pytest.mark.req("I6")
def test_the_transcript_holds_the_newest_10_000_lines() -> None:
    state = ConversationState("c")
    for number in range(10_001):
        state.append_transcript(f"line {number}")
    assert MAX_TRANSCRIPT_LEN == 10_000
    assert len(state.transcript) == 10_000
    assert (state.transcript[0], state.transcript[-1]) == ("line 1", "line 10000")


@pytest.mark.req("I5", "I7")
def test_what_may_be_sent_is_valid_for_every_provider_whatever_the_budget() -> None:
    state = ConversationState("c")
    state.tools = {ToolOrigin("builtin"): [tool("ls"), tool("cat")]}
    for number in range(12):
        work(state, f"question {number} " + "word " * 30, call("ls"), call("cat", path=f"{number}.txt"))
        state.set_next_user_message("and?")
        for limit in (700, 1_500, 200_000):
            validate(state.preview(Budget(limit)), state)
        state.push_assistant_message(Message.assistant("that is all"))


@pytest.mark.req("A5")
def test_results_under_a_repeated_provider_id_go_to_the_calls_in_order() -> None:
    state = ConversationState("c")
    state.set_next_user_message("go")
    calls = [ToolCallRequest(name="ls", args={}, provider_id="x") for _ in range(2)]
    state.push_assistant_message(Message.assistant(tool_calls=calls))
    results = [ToolCallResult(tool_call_id="x", result=number) for number in (1, 2)]
    message = state.add_tool_results(results)
    assert {one.tool_call_id: one.result for one in message.tool_results} == {calls[0].id: 1, calls[1].id: 2}
    with pytest.raises(InvalidMessage):
        state.add_tool_results([ToolCallResult(tool_call_id="x", result=3)])
