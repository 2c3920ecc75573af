"""Tangents: aside and back, with nothing, the tail or a summary; the main conversation is never touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conversation.conversation_fixtures import (
    Desk,
    call,
    compact,
    prompts,
    seen,
    spoken,
    talk,
    tool,
    validate,
)
from turnstate import Message
from turnstate.conversation import ConversationState, ToolOrigin, from_json, to_json
from turnstate.entry import Usage
from turnstate.errors import NotFound, NothingToUndo


@pytest.mark.req("J1")
def test_entering_keeps_the_main_conversation_visible() -> None:
    state = spoken()
    before = state.history
    state.enter_tangent_mode()
    assert state.is_in_tangent_mode()
    assert state.history == before
    talk(state, "aside")
    assert prompts(state) == ["one", "two", "aside"]
    assert state.tangent_state is not None
    assert state.tangent_state.main_history == before


@pytest.mark.req("J1")
def test_leaving_shows_the_main_conversation_byte_for_byte_as_before() -> None:
    state = spoken()
    before = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside", "further")
    state.append_transcript("503")
    assert seen(state) != before
    state.exit_tangent_mode()
    assert not state.is_in_tangent_mode()
    assert seen(state) == before


def cleared(state: ConversationState) -> None:
    state.clear()


def compacted(state: ConversationState) -> None:
    compact(state, 1)


def prompted(state: ConversationState) -> None:
    state.set_system("You keep a zoo.")


def equipped(state: ConversationState) -> None:
    state.tools = {ToolOrigin("builtin"): [tool("ls")]}
    state.set_model("gpt-4o")
    state.mcp_enabled = False


def calling(state: ConversationState) -> None:
    state.set_next_user_message("Look.")
    state.push_assistant_message(Message.assistant(tool_calls=[call()]))


def waiting(state: ConversationState) -> None:
    state.set_next_user_message("Hello?")


@pytest.mark.req("J1", "I8")
@pytest.mark.parametrize("what", [cleared, compacted, prompted, equipped, calling, waiting])
def test_whatever_is_done_in_a_tangent_is_gone_after_it(what: Callable[[ConversationState], None]) -> None:
    state = spoken()
    before = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside")
    what(state)
    state.exit_tangent_mode()
    assert seen(state) == before


@pytest.mark.req("J1")
@pytest.mark.parametrize("what", [waiting, calling])
def test_what_waits_in_the_main_conversation_waits_there_afterwards(
    what: Callable[[ConversationState], None],
) -> None:
    state = spoken()
    what(state)
    before = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside")
    validate(state.preview())
    state.exit_tangent_mode()
    assert seen(state) == before


@pytest.mark.req("J1")
def test_a_second_enter_changes_nothing() -> None:
    state = spoken()
    before = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside")
    inside = to_json(state)
    state.enter_tangent_mode()
    assert to_json(state) == inside
    state.exit_tangent_mode()
    assert seen(state) == before


@pytest.mark.req("J1")
@pytest.mark.parametrize(
    "leave",
    [
        ConversationState.exit_tangent_mode,
        ConversationState.exit_tangent_mode_with_tail,
        ConversationState.exit_tangent_mode_with_summary,
    ],
)
def test_leaving_outside_of_a_tangent_changes_nothing(leave: Callable[[ConversationState], None]) -> None:
    state = spoken()
    before = to_json(state)
    leave(state)
    assert to_json(state) == before


@pytest.mark.req("J1")
@pytest.mark.parametrize(
    "leave",
    [
        ConversationState.exit_tangent_mode,
        ConversationState.exit_tangent_mode_with_tail,
        ConversationState.exit_tangent_mode_with_summary,
    ],
)
def test_a_tangent_in_which_nothing_was_said_leaves_no_trace(
    leave: Callable[[ConversationState], None],
) -> None:
    state = spoken()
    before = seen(state)
    state.enter_tangent_mode()
    leave(state)
    assert seen(state) == before
    assert state.kept_tangents() == []
    with pytest.raises(NothingToUndo):
        state.undo()


@pytest.mark.req("J1")
def test_the_duration_is_counted_in_whole_seconds_of_the_clock(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    state = spoken(os=desk)
    assert state.get_tangent_duration_seconds() is None
    state.enter_tangent_mode()
    assert state.get_tangent_duration_seconds() == 0
    desk.clock.advance(61_999)
    assert state.get_tangent_duration_seconds() == 61
    desk.clock.advance(-120_000)  # somebody set the clock back
    assert state.get_tangent_duration_seconds() == 0
    state.exit_tangent_mode()
    assert state.get_tangent_duration_seconds() is None


@pytest.mark.req("J1")
def test_the_state_of_the_main_conversation_is_seen_from_inside(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    state = spoken(os=desk)
    assert state.tangent_state is None
    compact(state, 1)
    state.set_next_user_message("three")
    history, lines, summary = state.history, state.transcript, state.latest_summary
    state.enter_tangent_mode()
    talk(state, "aside")
    main = state.tangent_state
    assert main is not None
    assert (main.main_history, main.main_transcript) == (history, lines)
    assert main.main_next_message is not None
    assert main.main_next_message.prompt == "three"
    assert summary is not None
    assert main.main_latest_summary == summary
    assert main.tangent_start_time == desk.now()


@pytest.mark.req("J2")
def test_what_a_tangent_said_is_kept_and_can_be_taken_up_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    state = spoken(os=desk)
    main = seen(state)
    state.enter_tangent_mode()
    talk(state, "aside")
    inside = state.history
    state.exit_tangent_mode()
    kept = state.kept_tangents()
    assert [(one.opening, one.started) for one in kept] == [("aside", desk.now())]
    state.reopen_tangent(kept[0].name)
    assert state.is_in_tangent_mode()
    assert state.history == inside
    assert state.kept_tangents() == []
    talk(state, "further")
    state.exit_tangent_mode()
    assert seen(state) == main
    assert [one.opening for one in state.kept_tangents()] == ["aside"]


@pytest.mark.req("J2")
def test_a_tangent_shows_the_main_conversation_as_it_was_where_it_began() -> None:
    state = spoken()
    name = state.begin_tangent()
    talk(state, "aside")
    state.exit_tangent_mode()
    talk(state, "three")
    state.reopen_tangent(name)
    assert prompts(state) == ["one", "two", "aside"]
    state.exit_tangent_mode()
    assert prompts(state) == ["one", "two", "three"]


@pytest.mark.req("J2")
def test_a_tangent_that_nobody_knows_is_not_found() -> None:
    state = spoken()
    before = to_json(state)
    with pytest.raises(NotFound, match="no tangent elsewhere"):
        state.reopen_tangent("elsewhere")
    assert to_json(state) == before


@pytest.mark.req("J2", "I9")
def test_kept_tangents_survive_json() -> None:
    state = spoken()
    state.enter_tangent_mode()
    talk(state, "aside")
    state.exit_tangent_mode()
    restored = from_json(to_json(state))
    assert restored.kept_tangents() == state.kept_tangents()
    restored.reopen_tangent(restored.kept_tangents()[0].name)
    assert prompts(restored) == ["one", "two", "aside"]


@pytest.mark.req("J1")
def test_usage_that_is_reported_in_a_tangent_belongs_to_the_exchange_before_it() -> None:
    state = spoken()
    state.enter_tangent_mode()
    state.add(Usage(input=7))
    assert [one.request_metadata for one in state.history] == [None, Usage(input=7)]
    state.exit_tangent_mode()
    assert [one.request_metadata for one in state.history] == [None, None]


@pytest.mark.req("J1")
def test_a_tangent_from_between_calls_and_their_results_begins_before_the_calls() -> None:
    state = spoken()
    state.set_next_user_message("three")
    asked = Message.assistant(tool_calls=[call()])
    state.push_assistant_message(asked)
    state.begin_tangent(at=asked.id)
    assert [message.text for message in state.messages][-1] == "three"
    assert asked.id not in [message.id for message in state.messages]
