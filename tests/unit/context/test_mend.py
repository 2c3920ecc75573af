from __future__ import annotations

from typing import Any

import pytest

from holdfast import formats
from holdfast.context.mend import accepted
from holdfast.errors import InvalidConversation

pytestmark = pytest.mark.req("P4")

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
NAMED = {"role": "user", "content": "hi", "name": "Ada"}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "notes.txt"}


def calling(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def called(**changes: Any) -> dict[str, Any]:
    return {**CALL, "function": {**CALL["function"], **changes}}  # type: ignore[dict-item]


CHAT: dict[str, list[dict[str, Any]]] = {
    "an empty list of calls": [{"role": "assistant", "content": "yes", "tool_calls": []}],
    "no content": [{"role": "assistant", "content": None}],
    "a user who says nothing": [{"role": "user", "content": None}],
    "a list without parts": [{"role": "user", "content": []}],
    "an id that is too long": [calling({**CALL, "id": "x" * 50}), {**ANSWER, "tool_call_id": "x" * 50}],
    "a name that is none": [calling(called(name="list files!")), ANSWER],
    "arguments that are no text": [calling(called(arguments={"path": "."})), ANSWER],
    "one id for two calls": [calling(CALL, CALL), ANSWER, {**ANSWER, "content": "more"}],
    "a result of null": [calling(CALL), {**ANSWER, "content": None}],
}


@pytest.mark.parametrize("middle", CHAT.values(), ids=CHAT.keys())
def test_what_chat_rejects_is_rewritten_and_the_neighbours_keep_their_marks(
    middle: list[dict[str, Any]],
) -> None:
    chat = formats.get("openai-chat")
    document = [NAMED, *middle, NAMED]
    assert chat.validate(document) != []
    payload, repairs = accepted(chat.parse(document), chat)
    assert chat.validate(payload) == []
    assert (payload[0], payload[-1]) == (NAMED, NAMED)
    assert {repair.text for repair in repairs} == {"rewritten without what the provider rejects"}


MARKED = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
ANTHROPIC: dict[str, list[dict[str, Any]]] = {
    "an empty message": [{"role": "assistant", "content": ""}],
    "an empty block": [{"role": "assistant", "content": [{"type": "text", "text": ""}]}],
    "a thought without its signature": [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
        }
    ],
}


@pytest.mark.parametrize("middle", ANTHROPIC.values(), ids=ANTHROPIC.keys())
def test_what_anthropic_rejects_is_rewritten_and_marks_elsewhere_stay(middle: list[dict[str, Any]]) -> None:
    anthropic = formats.get("anthropic")
    document = {"model": "m", "system": "Be brief.", "messages": [MARKED, *middle, MARKED]}
    payload, repairs = accepted(anthropic.parse(document), anthropic)
    assert anthropic.validate(payload) == []
    assert payload["messages"][0] == payload["messages"][-1] == MARKED
    assert (payload["model"], payload["system"]) == ("m", "Be brief.")
    assert len(repairs) == 1


def test_messages_that_may_not_stand_in_a_row_are_joined() -> None:
    bedrock = formats.get("bedrock")
    document = [{"role": "user", "content": [{"text": text}]} for text in ("one", "two", "three")]
    payload, _ = accepted(bedrock.parse(document), bedrock)
    assert [message["content"] for message in payload] == [
        [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    ]


BEDROCK = {
    "modelId": "m",
    "messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {}}},
            ],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "a"}]}}]},
    ],
}


def test_tools_that_must_be_defined_and_are_not_get_the_least_definition() -> None:
    bedrock = formats.get("bedrock")
    payload, repairs = accepted(bedrock.parse(BEDROCK), bedrock)
    assert bedrock.validate(payload) == []
    assert {key: payload[key] for key in BEDROCK} == BEDROCK
    assert [(repair.id, repair.text) for repair in repairs] == [("ls", "the least definition is added")]


@pytest.mark.parametrize("name", formats.names())
def test_no_definition_is_added_where_none_is_wanted(name: str) -> None:
    format = formats.get(name)
    chat = formats.get("openai-chat")
    document = formats.convert([NAMED, calling(CALL), ANSWER, NAMED], chat, format).payload
    document = document if isinstance(document, dict) else {"model": "m", format.list_key: document}
    assert accepted(format.parse(document), format) == (document, ())


def test_a_system_text_that_is_rejected_is_rewritten() -> None:
    anthropic = formats.get("anthropic")
    document = {"system": [{"type": "text", "text": ""}], "messages": [{"role": "user", "content": "hi"}]}
    payload, _ = accepted(anthropic.parse(document), anthropic)
    assert anthropic.validate(payload) == []
    assert payload["messages"] == document["messages"]


@pytest.mark.parametrize("name", formats.names())
def test_what_is_accepted_stays_as_it_is(name: str) -> None:
    format = formats.get(name)
    chat = formats.get("openai-chat")
    document = formats.convert([NAMED, calling(CALL), ANSWER, NAMED], chat, format).payload
    assert accepted(format.parse(document), format) == (document, ())


def test_one_bad_message_among_many_is_the_only_one_touched() -> None:
    chat = formats.get("openai-chat")
    document: list[Any] = [{**NAMED, "content": f"number {number}"} for number in range(300)]
    document[137] = {"role": "user", "content": None, "name": "Eve"}
    payload, repairs = accepted(chat.parse(document), chat)
    assert len(repairs) == 1
    assert [one for one in payload if one.get("name") != "Ada"] == [{"role": "user", "content": ""}]


def test_what_cannot_be_mended_is_an_error_that_says_what_is_rejected() -> None:
    anthropic = formats.get("anthropic")
    document = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    with pytest.raises(InvalidConversation, match="anthropic would reject the result: message 1: last-user"):
        accepted(anthropic.parse(document), anthropic, request=True)
