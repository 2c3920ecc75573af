from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from tests.properties.amazon_q_strategies import damaged, documents
from tests.unit.conversation.conversation_fixtures import stored
from turnstate import Message, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, amazon_q, from_json, to_json
from turnstate.conversation.tools import specs
from turnstate.errors import TurnstateError
from turnstate.sticky import Workspace
from turnstate.testing import conversations as written

NOWHERE = Path("/nonexistent")


class Nowhere:
    """An environment without files, with a fixed clock."""

    def now(self) -> int:
        return 1_761_368_591_500

    def workspace(self) -> Workspace:
        return Workspace(root=NOWHERE, home=NOWHERE)


def read(document: Any) -> ConversationState:
    return amazon_q.read(document, os=Nowhere())


def exactly(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


async def kept(state: ConversationState, url: str = "memory:") -> ConversationState:
    """Write a conversation to a store, and load it with another handle."""
    async with await SessionManager.open(url) as sessions:
        session = await stored(state, sessions)
        return await session.conversation(last=10_000, os=Nowhere())


@pytest.mark.req("I9", "L1", "M1", "J1")
@given(documents())
@examples(19, long=1_500)
def test_a_document_comes_back_as_it_was(document: Any) -> None:
    assert exactly(amazon_q.write(read(document))) == exactly(document)


@pytest.mark.req("I9", "I1")
@given(documents())
@examples(13, long=1_000)
def test_a_document_comes_back_from_our_own_json(document: Any) -> None:
    ours = json.loads(json.dumps(to_json(read(document))))
    assert exactly(amazon_q.write(from_json(ours, os=Nowhere()))) == exactly(document)


@pytest.mark.req("I9", "I1")
@given(documents())
@examples(13, long=1_000)
def test_a_document_comes_back_from_a_store(document: Any) -> None:
    loaded = asyncio.run(kept(read(document)))
    assert exactly(amazon_q.write(loaded)) == exactly(document)


@pytest.mark.req("I9", "A7")
@given(documents())
@examples(6, long=500)
def test_a_document_read_twice_gives_the_same_messages(document: Any) -> None:
    once, again = read(document), read(json.loads(json.dumps(document)))
    assert once.log.entries == again.log.entries
    assert once.log.branches == again.log.branches


@pytest.mark.req("J1", "I9")
@given(documents())
@examples(13, long=1_000)
def test_leaving_the_tangent_of_a_document_shows_its_main_conversation(document: Any) -> None:
    state, tangent = read(document), document.get("tangent_state")
    if tangent is None:
        assert not state.is_in_tangent_mode()
        return
    assert state.is_in_tangent_mode()
    state.exit_tangent_mode()
    shown = amazon_q.write(state)
    for name in ("history", "next_message", "transcript", "latest_summary"):
        assert exactly(shown.get(name)) == exactly(tangent.get(f"main_{name}")), name
    assert shown.get("tangent_state") is None


@pytest.mark.req("I7", "A8")
@given(documents())
@examples(13, long=1_000)
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
@examples(20, long=2_500)
def test_a_damaged_document_is_refused_with_its_place_or_comes_back_as_it_is(document: Any) -> None:
    try:
        state = read(document)
    except TurnstateError as error:
        event(type(error).__name__)
        return
    event("read")
    document["valid_history_range"] = [0, len(document["history"])]
    assert exactly(amazon_q.write(state)) == exactly(document)


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
@examples(19, long=1_500)
def test_what_is_exported_after_more_was_done_can_be_read_again(document: Any, steps: list[Any]) -> None:
    state = read(document)
    for step in steps:
        step(state)
    exported = amazon_q.write(state)
    again = read(exported)
    assert exactly(amazon_q.write(again)) == exactly(exported)
    assert len(again.history) == len(exported["history"])
    assert again.transcript == state.transcript
    if steps[-1] is ask:
        assert (exported["next_message"]["content"].popitem()[1]["prompt"]).endswith("And now?")


def uses_and_results(document: Any) -> list[tuple[list[str], list[str]]]:
    """Return the ids of the tool uses of each answer, with those of the results that follow."""
    users = [entry["user"] for entry in document["history"]] + [document["next_message"]]
    found = []
    for place, entry in enumerate(document["history"]):
        ((_, said),) = entry["assistant"].items()
        following = users[place + 1]
        ((_, told),) = following["content"].items() if following else (("", {}),)
        uses = [one["id"] for one in said.get("tool_uses", [])]
        results = [one["tool_use_id"] for one in told.get("tool_use_results", [])]
        found.append((sorted(uses), sorted(results)))
    if document["next_message"] is None:
        found = found[:-1]  # the calls of the last answer may still be under way
    return found


def assert_answered(state: ConversationState) -> None:
    document = amazon_q.write(state)
    for uses, results in uses_and_results(document):
        assert uses == results
    first = document["history"][0]["user"]["content"] if document["history"] else {}
    assert not first or "Prompt" in first
    again = read(document)
    assert exactly(amazon_q.write(again)) == exactly(document)


@pytest.mark.req("I7", "I9")
@given(seed=st.integers(0, 10_000), steps=st.lists(st.sampled_from("uatpx"), max_size=14))
@examples(15, long=2_000)
def test_every_tool_use_of_a_state_is_exported_with_its_result(seed: int, steps: list[str]) -> None:
    rng = random.Random(seed)
    state = ConversationState("c", os=Nowhere())
    for step in ["u", *steps]:
        calls = [ToolCallRequest(name="ls", args={}) for _ in range(rng.randrange(4))]
        results = {one.tool_call_id for message in state.messages for one in message.tool_results}
        last = [message for message in state.messages if message.role == "assistant"][-1:]
        asked = [call.id for message in last for call in message.tool_calls if call.id not in results]
        match step:
            case "u":
                state.set_next_user_message("go on")
            case "a":
                state.add(Message.assistant("well", tool_calls=calls))
            case "t" if asked:
                some = rng.sample(asked, rng.randint(1, len(asked)))
                state.add(Message.tool([ToolCallResult(tool_call_id=one, result=1) for one in some]))
            case "p":
                state.add(Message.user("never mind"))
            case _ if calls:
                late = ToolCallResult(tool_call_id=calls[0].id, result="late")
                state.add(Message.tool([late]))
    assert_answered(state)


@pytest.mark.req("I7", "I9")
@pytest.mark.parametrize("seed", range(40))
def test_every_tool_use_of_a_session_is_exported_with_its_result(seed: int) -> None:
    async def scene() -> ConversationState:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create(id=f"s{seed}")
            for message in written.broken(seed):
                if message.role != "system":
                    with suppress(TurnstateError):
                        await session.append(message)
            return await session.conversation(last=10_000, os=Nowhere())

    assert_answered(asyncio.run(scene()))
