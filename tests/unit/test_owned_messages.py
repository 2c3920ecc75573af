"""A message that was given away is nobody else's: changing its dicts and lists changes no conversation."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from turnstate import Budget, Message, StateManager, ToolCallRequest, ToolCallResult
from turnstate.conversation import ConversationState
from turnstate.errors import InputError
from turnstate.part import Edit, Native, OpaquePart, TextPart
from turnstate.session import SessionManager
from turnstate.value import Extra

pytestmark = pytest.mark.req("A7")

BUDGET = Budget(20_000)


def calling() -> Message:
    args = {"path": "a.py", "options": {"lines": [1, 2]}}
    return Message.assistant(tool_calls=[ToolCallRequest(name="read", args=args)])


def answering(call: ToolCallRequest) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=call.id, result={"rows": [{"id": 1}]})])


def showing() -> Message:
    return Message.user([TextPart("look"), OpaquePart(format="anthropic", body={"a": [1]}, text="a block")])


def noted() -> Message:
    native = Native(format="anthropic", edits=(Edit(at=("x",), to={"y": [1]}),), envelope={"model": ["m"]})
    return Message.user("hello").replace(native=native, extra=Extra(mood=["curious"]))


def spoil(value: Any) -> None:
    """Change everything in a value that can be changed."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            spoil(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            spoil(item)
    elif isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")


def conversation() -> list[Message]:
    asked = calling()
    return [showing(), asked, answering(asked.tool_calls[0]), noted()]


def test_an_owned_message_shares_nothing_that_can_be_changed() -> None:
    for message in conversation():
        before = msgspec.json.encode(message)
        mine = message.owned()
        assert mine == message
        spoil(message)
        assert msgspec.json.encode(mine) == before != msgspec.json.encode(message)


def test_a_message_that_nobody_can_change_is_its_own_copy() -> None:
    for message in (
        Message.user("hello"),
        Message.user([TextPart("hello")]),
        Message.tool([ToolCallResult(tool_call_id="x", result="text")]),
    ):
        assert message.owned() is message


@pytest.mark.parametrize(
    "spoiled", [math.nan, math.inf, "\ud800", {1: 2}, object(), b"bytes", {"a": {math.nan}}]
)
def test_what_was_put_in_since_is_checked(spoiled: Any) -> None:
    message = calling()
    message.tool_calls[0].args["spoiled"] = spoiled
    with pytest.raises(InputError):
        message.owned()

    async def main() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            with pytest.raises(InputError):
                await session.append(message)
            assert await session.messages() == []

    asyncio.run(main())


def test_a_session_shows_what_was_appended_and_not_what_became_of_it() -> None:
    async def main() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            await session.window(BUDGET)
            for message in conversation():
                await session.append(message)
                spoil(message)
            live = await session.window(BUDGET)
            reopened = await (await sessions.open(session.id)).window(BUDGET)
            assert msgspec.json.encode(live.messages) == msgspec.json.encode(reopened.messages)
            assert b"spoiled" not in msgspec.json.encode(live.messages)
            assert live.tokens == reopened.tokens

    asyncio.run(main())


def test_a_message_that_changes_while_it_is_written_is_written_as_it_was() -> None:
    async def main() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            message = calling()
            task = asyncio.create_task(session.append(Message.user("go"), message))
            await asyncio.sleep(0)
            spoil(message)
            await task
            live, logged = (await session.window(BUDGET)).messages, await session.messages()
            assert b"spoiled" not in msgspec.json.encode([*live[:2], *logged])

    asyncio.run(main())


@pytest.mark.parametrize("grown", [False, True])
def test_a_tally_keeps_what_it_was_given(grown: bool) -> None:
    manager, messages = StateManager(), conversation()
    tally = manager.tally([] if grown else messages, BUDGET)
    for message in messages if grown else []:
        tally.add(message)
    for message in messages:
        spoil(message)
    window = manager.window(tally, BUDGET)
    assert b"spoiled" not in msgspec.json.encode(window.messages)
    assert window.tokens == manager.window(conversation(), BUDGET).tokens


def test_a_state_keeps_what_it_was_told() -> None:
    state, asked = ConversationState("c"), calling()
    state.set_next_user_message("go")
    state.push_assistant_message(asked)
    answered = answering(asked.tool_calls[0])
    results = list(answered.tool_results)
    state.add_tool_results(results)
    spoil(asked)
    spoil(results)
    assert b"spoiled" not in msgspec.json.encode(state.window().messages)
    assert b"spoiled" not in msgspec.json.encode(state.messages)


def test_what_becomes_of_a_view_does_not_reach_its_session() -> None:
    async def main() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            await session.append(Message.user("go"), calling())
            await session.window(BUDGET)
            for message in (await session.conversation()).messages:
                spoil(message)
            for found in (await session.window(BUDGET), await session.conversation()):
                assert b"spoiled" not in msgspec.json.encode(found.messages)

    asyncio.run(main())
