"""Invariants before every request: it is made sound for every provider, and the log stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.conversation.conversation_fixtures import call, exchanges, result, talk, tool, validate, write
from turnstate import Budget, Message, ToolCallRequest
from turnstate.context.window import Window
from turnstate.conversation import ConversationState, ToolOrigin
from turnstate.conversation.tools import PLACEHOLDER

pytestmark = pytest.mark.req("I7")


def answered(state: ConversationState, one: ToolCallRequest) -> None:
    """Let the user ask, one call be made and answered, and the user ask again."""
    state.set_next_user_message("Look.")
    state.push_assistant_message(Message.assistant(tool_calls=[one]))
    state.add_tool_results([result(one)])
    state.push_assistant_message(Message.assistant("There."))
    state.set_next_user_message("And now?")


def sent(window: Window) -> ToolCallRequest:
    return next(one for message in window.messages for one in message.tool_calls)


def known(*names: str) -> dict[ToolOrigin, Any]:
    return {ToolOrigin("builtin"): [tool(name) for name in names]}


def test_the_first_message_is_the_users_and_holds_no_results() -> None:
    state = ConversationState("c")
    write(state, *exchanges(30, a_turn=30))
    write(state, Message.user("and now? " * 20))
    for limit in (300, 600, 2_000):
        window = state.preview(Budget(limit))
        first = next(message for message in window.messages if message.role != "system")
        assert first.role == "user"
        assert not first.tool_results
        validate(window)


def test_a_conversation_that_begins_with_results_shows_them_as_text() -> None:
    state = ConversationState("c")
    write(state, Message.tool([result(call(), "42 ships")]), Message.assistant("Many."))
    state.set_next_user_message("And now?")
    window = state.window()
    validate(window)
    assert not any(message.tool_results for message in window.messages)
    assert any("42 ships" in message.text for message in window.messages)
    assert state.history[0].user.tool_use_results != ()


def test_a_result_whose_call_is_gone_becomes_plain_text() -> None:
    state = ConversationState("c")
    talk(state, "hello")
    lost = Message.tool([result(call(), "the late answer")])
    write(state, Message.user("And?"), Message.assistant("Wait."), lost)
    state.set_next_user_message("Well?")
    window = state.window()
    validate(window)
    assert any("the late answer" in message.text for message in window.messages)
    assert lost in state.messages


def test_abandoned_calls_that_nobody_cancelled_are_answered_in_the_request() -> None:
    state = ConversationState("c")
    one = call()
    write(state, Message.user("Look."), Message.assistant(tool_calls=[one]), Message.user("Never mind."))
    window = state.window()
    validate(window)
    given = [answer for message in window.messages for answer in message.tool_results]
    assert [(answer.tool_call_id, answer.is_error) for answer in given] == [(one.id, True)]
    assert not any(message.tool_results for message in state.messages)


def test_a_tool_that_exists_keeps_its_name() -> None:
    state = ConversationState("c")
    state.tools = known("read", "fs_read")
    one = call("read", path="a")
    answered(state, one)
    assert sent(state.window()) == one


def test_a_renamed_tool_goes_back_to_the_name_that_was_first_received() -> None:
    state = ConversationState("c")
    state.tools = known("fs_read", "other_read")
    one = ToolCallRequest(
        name="read", args={"path": "b"}, extra={"orig_name": "fs_read", "orig_args": {"p": 1}}
    )
    answered(state, one)
    shown = sent(state.window())
    assert (shown.name, shown.args, shown.id) == ("fs_read", {"p": 1}, one.id)


@pytest.mark.parametrize("original", ["gone", 7, None])
def test_an_original_name_that_is_gone_as_well_helps_nobody(original: Any) -> None:
    state = ConversationState("c")
    state.tools = known("fs_read")
    one = ToolCallRequest(name="grep", args={"path": "b"}, extra={"orig_name": original})
    answered(state, one)
    assert sent(state.window()).name == PLACEHOLDER


def test_the_one_tool_whose_name_ends_like_it_is_used() -> None:
    state = ConversationState("c")
    state.tools = known("files___read", "list")
    one = call("read", path="a")
    answered(state, one)
    shown = sent(state.window())
    assert (shown.name, shown.args) == ("files___read", {"path": "a"})


@pytest.mark.parametrize("names", [("a_read", "b_read"), ("list",), ("reader",)])
def test_a_name_that_is_ambiguous_or_gone_becomes_a_placeholder(names: tuple[str, ...]) -> None:
    state = ConversationState("c")
    state.tools = known(*names)
    answered(state, call("read", path="a"))
    assert sent(state.window()).name == PLACEHOLDER == "dummy"
    assert sent(state.window()).args == {"path": "a"}


@pytest.mark.parametrize(
    "names", [("read",), ("fs___read",), ("a_read", "b_read"), ("list",)], ids=lambda names: "+".join(names)
)
def test_a_repaired_request_is_valid_everywhere_and_the_log_has_what_was_called(
    names: tuple[str, ...],
) -> None:
    state = ConversationState("c")
    state.tools = known(*names)
    one = call("read", path="a")
    answered(state, one)
    before = state.messages
    validate(state.window(), state)
    assert state.messages == before
    assert [was for message in state.messages for was in message.tool_calls] == [one]


def test_names_follow_the_tools_from_request_to_request() -> None:
    state = ConversationState("c")
    answered(state, call("read"))
    assert sent(state.window()).name == "read"  # nothing is known of tools
    state.tools = known("list")
    assert sent(state.window()).name == PLACEHOLDER
    state.tools = known("list", "read")
    assert sent(state.window()).name == "read"


def test_a_window_that_is_only_looked_at_decides_nothing() -> None:
    state = ConversationState("c")
    talk(state, *(f"question {number} " + "word " * 60 for number in range(30)))
    state.set_next_user_message("And now?")
    before = state.log.head.seq
    looked = state.preview(Budget(1_000))
    assert looked.decisions
    assert state.log.head.seq == before
    made = state.window(Budget(1_000))
    assert made.messages == looked.messages
    assert state.log.head.seq == before + len(made.decisions)
    again = state.window(Budget(1_000))
    assert (again.messages, again.decisions) == (made.messages, ())
