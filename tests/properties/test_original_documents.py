from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from original_strategies import damaged, documents

from holdfast import Message, SessionManager, ToolCallRequest, formats
from holdfast.context.compaction import Strategy
from holdfast.conversation import ConversationState, from_json, original, to_json
from holdfast.conversation.tools import specs
from holdfast.errors import HoldfastError
from holdfast.sticky import Workspace

NOWHERE = Path("/nonexistent")


class Nowhere:
    """A system without a file in it, whose clock stands still."""

    def now(self) -> int:
        return 1_761_368_591_500

    def workspace(self) -> Workspace:
        return Workspace(root=NOWHERE, home=NOWHERE)


def read(document: Any) -> ConversationState:
    return original.read(document, os=Nowhere())


def exactly(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


async def kept(state: ConversationState, url: str = "memory:") -> ConversationState:
    """Keep a conversation in a store, and load it again with another handle."""
    async with await SessionManager.open(url) as sessions:
        session = await sessions.create(id=state.conversation_id)
        await session.commit(state)
        return await (await sessions.open(state.conversation_id)).conversation(os=Nowhere())


@pytest.mark.req("I9", "L1", "M1", "J1")
@given(documents())
@settings(max_examples=150)
def test_a_document_comes_back_as_it_was(document: Any) -> None:
    assert exactly(original.write(read(document))) == exactly(document)


@pytest.mark.req("I9", "I1")
@given(documents())
@settings(max_examples=100)
def test_a_document_comes_back_from_our_own_json(document: Any) -> None:
    ours = json.loads(json.dumps(to_json(read(document))))
    assert exactly(original.write(from_json(ours, os=Nowhere()))) == exactly(document)


@pytest.mark.req("I9", "I1")
@given(documents())
@settings(max_examples=100)
def test_a_document_comes_back_from_a_store(document: Any) -> None:
    loaded = asyncio.run(kept(read(document)))
    assert exactly(original.write(loaded)) == exactly(document)


@pytest.mark.req("I9", "A7")
@given(documents())
@settings(max_examples=50)
def test_a_document_read_twice_gives_the_same_messages(document: Any) -> None:
    once, again = read(document), read(json.loads(json.dumps(document)))
    assert [list(one.messages) for one in once.strands] == [list(one.messages) for one in again.strands]


@pytest.mark.req("J1", "I9")
@given(documents())
@settings(max_examples=100)
def test_leaving_the_tangent_of_a_document_shows_its_main_conversation(document: Any) -> None:
    state, tangent = read(document), document.get("tangent_state")
    if tangent is None:
        assert not state.is_in_tangent_mode()
        return
    assert state.is_in_tangent_mode()
    state.exit_tangent_mode()
    shown = original.write(state)
    for name in ("history", "next_message", "transcript", "latest_summary"):
        assert exactly(shown.get(name)) == exactly(tangent.get(f"main_{name}")), name
    assert shown.get("tangent_state") is None


@pytest.mark.req("I7", "A8")
@given(documents())
@settings(max_examples=100)
def test_every_provider_takes_what_is_sent_next(document: Any) -> None:
    state = read(document)
    state.set_next_user_message("Where were we?")
    window = state.window()
    for name in formats.names():
        provider = formats.get(name)
        payload = provider.render(window.messages, tools=specs(state.tools))
        assert provider.validate(payload, request=True) == [], name


@pytest.mark.req("I9")
@given(damaged())
@settings(max_examples=250)
def test_a_damaged_document_is_refused_with_its_place_or_comes_back_as_it_is(document: Any) -> None:
    try:
        state = read(document)
    except HoldfastError as error:
        event(type(error).__name__)
        return
    event("read")
    document["valid_history_range"] = [0, len(document["history"])]
    assert exactly(original.write(state)) == exactly(document)


def ask(state: ConversationState) -> None:
    state.set_next_user_message("And now?")


def answer(state: ConversationState) -> None:
    ask(state)
    call = ToolCallRequest(name="fs_read", args={})
    state.push_assistant_message(Message.assistant(tool_calls=[call]))


def compact(state: ConversationState) -> None:
    if plan := state.plan_compaction(Strategy(keep=1)):
        state.compact(plan)


STEPS: list[Callable[[ConversationState], object]] = [
    ask,
    answer,
    compact,
    ConversationState.clear,
    ConversationState.enter_tangent_mode,
    ConversationState.begin_tangent,
    ConversationState.exit_tangent_mode,
    ConversationState.exit_tangent_mode_with_tail,
    ConversationState.exit_tangent_mode_with_summary,
]


@pytest.mark.req("I9", "J3")
@given(documents(), st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))
@settings(max_examples=150)
def test_what_is_exported_after_more_was_done_can_be_read_again(document: Any, steps: list[Any]) -> None:
    state = read(document)
    for step in steps:
        step(state)
    exported = original.write(state)
    again = read(exported)
    assert exactly(original.write(again)) == exactly(exported)
    assert len(again.history) == len(exported["history"])
    assert again.transcript == state.transcript
    if steps[-1] is ask:
        assert (exported["next_message"]["content"].popitem()[1]["prompt"]).endswith("And now?")
