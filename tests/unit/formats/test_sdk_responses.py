"""What a provider answers is not what it takes: what only a response holds never goes back."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest

from tests.unit.formats.sdk_responses import ANSWERED, Answered
from turnstate import codec, formats
from turnstate.context import Budget, StateManager
from turnstate.message import Message, ToolCallResult
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("A8")

each_answer = pytest.mark.parametrize("answered", ANSWERED, ids=lambda answered: answered.provider)


def document(answered: Answered) -> Any:
    return {
        formats.get(answered.provider).list_key: [
            answered.question,
            *copy.deepcopy(answered.items),
            *answered.answers,
        ],
        **(
            {"toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {}}}}]}}
            if answered.provider == "bedrock"
            else {}
        ),
    }


def names(value: Any) -> set[str]:
    """Name every field of a value that is null, or that it must not have."""
    if isinstance(value, list):
        return {name for item in value for name in names(item)}
    if not isinstance(value, dict):
        return set()
    nulls = {key for key, item in value.items() if item is None}
    return nulls | {name for item in value.values() for name in names(item)}


@each_answer
def test_what_only_a_response_holds_is_a_violation(answered: Answered) -> None:
    provider = formats.get(answered.provider)
    assert {one.rule for one in provider.validate(document(answered))} == {"response-field"}


@each_answer
def test_what_only_a_response_holds_is_left_out_and_listed(answered: Answered) -> None:
    provider = formats.get(answered.provider)
    rendering = provider.rendering(provider.parse(document(answered)))
    assert provider.validate(rendering.payload) == []
    assert provider.warnings(rendering.payload) == []
    assert names(rendering.payload) <= {"content"}  # an assistant that calls or speaks aloud may say null
    listed = {one.text.removeprefix("the response's field `").rstrip("`") for one in rendering.left_out}
    assert answered.dropped <= listed


@each_answer
def test_the_log_keeps_what_only_a_response_holds(answered: Answered) -> None:
    provider = formats.get(answered.provider)
    messages = provider.parse(document(answered))
    stored = [codec.decode(codec.encode(message)) for message in messages]
    assert stored == messages
    written = json.dumps([codec.encode(message).decode() for message in messages])
    assert all(name.rpartition(".")[2] in written for name in answered.dropped)


@each_answer
def test_an_answer_goes_through_a_session_into_the_next_request(answered: Answered) -> None:
    provider = formats.get(answered.provider)
    list_key = provider.list_key

    async def scene() -> tuple[Message, ...]:
        session = await SessionManager(MemoryStore()).create()
        await session.append(*provider.parse({list_key: [answered.question]}))
        await session.append(*provider.parse({list_key: copy.deepcopy(answered.items)}))
        asked = [message for message in await session.messages() if message.tool_calls]
        for message in asked:
            results = [(call.id, "fog") for call in message.tool_calls]
            await session.append(*(tool(*result) for result in results))
        return (await session.window(Budget(100_000))).messages

    messages = asyncio.run(scene())
    payload = provider.render(messages)
    assert provider.validate(payload) == []
    assert provider.warnings(payload) == []
    for other in map(formats.get, formats.names()):
        assert other.validate(other.render(messages)) == []


def tool(call: str, result: Any) -> Message:
    return Message.tool([ToolCallResult.of(call, result)])


@each_answer
def test_a_rendered_request_comes_back_to_the_byte(answered: Answered) -> None:
    provider = formats.get(answered.provider)
    request = provider.render(provider.parse(document(answered)))
    window = StateManager().window(provider.parse(request), Budget.UNLIMITED)
    assert json.dumps(provider.render(provider.parse(request))) == json.dumps(request)
    assert json.dumps(provider.render(window.messages), sort_keys=True) == json.dumps(request, sort_keys=True)


def test_what_was_said_aloud_goes_back_by_its_id_and_to_others_as_text() -> None:
    spoken = next(one for one in ANSWERED if not one.answers)
    chat = formats.get("openai-chat")
    messages = chat.parse([spoken.question, *spoken.items])
    assert chat.render(messages)["messages"][1] == {
        "role": "assistant",
        "content": None,
        "audio": {"id": "audio_1"},
    }
    assert formats.get("anthropic").render(messages)["messages"][1]["content"] == "There is fog."


def test_a_refusal_goes_back() -> None:
    chat = formats.get("openai-chat")
    document = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "refusal": "No."}]
    assert chat.validate(document) == []
    assert chat.render(chat.parse(document)) == {"messages": document}


UNKNOWN: dict[str, Any] = {
    "openai-chat": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "z"},
    ],
    "openai-responses": [{"role": "user", "content": "x", "mood": 1}],
    "anthropic": {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "mood": 1}]}]},
    "bedrock": {"messages": [{"role": "user", "content": [{"text": "x"}], "mood": 1}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "x", "mood": 1}]}]},
}


@pytest.mark.parametrize("name", formats.names())
def test_a_field_that_nobody_declares_is_sent_and_is_a_warning(name: str) -> None:
    provider, document = formats.get(name), UNKNOWN[name]
    assert provider.validate(document) == []
    (warning,) = provider.warnings(document)
    assert warning.rule == "unknown-field"
    assert provider.validate(document, strict=True) == [warning]
    window = StateManager().window(provider.parse(document), Budget.UNLIMITED)
    assert provider.rendering(window.messages).document == document
