from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from turnstate import (
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    formats,
)
from turnstate.tokens import Count, conversation_cost, counter, counter_for, message_cost, tools_cost
from turnstate.tokens.cost import CALL_FRAME, FILE_UNKNOWN, MESSAGE_FRAME, REPLY_START, RESULT_FRAME, Meter

pytestmark = pytest.mark.req("B3")

EXACT = counter("o200k_base")
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAYAAAB/HSuDAAAA")  # 1,024 by 1,024


class Letters:
    """Counts characters, so that a test can see what was counted."""

    name = "letters"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> Count:
        self.texts.append(text)
        return Count(len(text))


def texts(message: Message) -> list[str]:
    letters = Letters()
    message_cost(message, letters)
    return letters.texts


def call(**fields: Any) -> ToolCallRequest:
    return ToolCallRequest(**{"name": "search", "args": {"query": "漢字", "k": 3}} | fields)


def answer(result: Any, **fields: Any) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=call().id, result=result, **fields)])


@pytest.mark.parametrize(
    "message", [Message.user("hello world"), Message.system("hello world"), Message.assistant("hello world")]
)
def test_text_costs_its_tokens_and_the_frame(message: Message) -> None:
    assert message_cost(message, EXACT) == Count(MESSAGE_FRAME + 2, "exact")


def test_text_in_parts_costs_what_its_parts_cost() -> None:
    assert texts(Message.user([TextPart(text="one"), TextPart(text="two")])) == ["one", "two"]


def test_the_name_and_the_arguments_of_a_call_are_counted_as_sent() -> None:
    message = Message.assistant("on it", tool_calls=[call()])
    assert texts(message) == ["on it", "search", '{"query":"漢字","k":3}']
    assert message_cost(message, Letters()) == Count(MESSAGE_FRAME + CALL_FRAME + 5 + 6 + 20)


def test_every_call_has_its_own_frame() -> None:
    one, two = (
        message_cost(Message.assistant(tool_calls=[call() for _ in range(n)]), EXACT).tokens for n in (1, 2)
    )
    assert two - one == one - MESSAGE_FRAME > CALL_FRAME


@pytest.mark.parametrize(
    ("result", "sent"),
    [
        ("plain text", "plain text"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (0, "0"),
        ("", ""),
        (None, "null"),
        ([], "[]"),
    ],
)
def test_a_result_is_counted_as_the_text_that_the_model_reads(result: Any, sent: str) -> None:
    assert texts(answer(result)) == [sent]
    assert message_cost(answer(result), Letters()) == Count(MESSAGE_FRAME + RESULT_FRAME + len(sent))


def test_an_image_in_a_result_costs_an_image_and_not_its_base64() -> None:
    body = base64.b64encode(PNG).decode()
    message = answer(
        [{"type": "text", "text": "a cat"}, {"type": "image", "data": body, "media_type": "image/png"}]
    )
    assert texts(message) == ["a cat"]
    assert message_cost(message, EXACT) == Count(MESSAGE_FRAME + RESULT_FRAME + 2 + 765, "estimated")


def test_images_follow_the_rule_of_the_counters_provider() -> None:
    message = Message.user([ImagePart(data=PNG)])
    costs = {
        name: message_cost(message, counter(name)).tokens
        for name in ("o200k_base", "estimate:claude", "estimate:gemini")
    }
    assert costs == {"o200k_base": 769, "estimate:claude": 1403, "estimate:gemini": 1036}


def test_the_rule_for_images_can_be_given() -> None:
    message = Message.user([ImagePart(url="https://example.org/a.png"), TextPart(text="hello")])
    assert message_cost(message, EXACT, images=lambda _: 7) == Count(MESSAGE_FRAME + 7 + 1, "estimated")
    assert (
        conversation_cost([message], EXACT, images=lambda _: 7).tokens == MESSAGE_FRAME + 7 + 1 + REPLY_START
    )


@pytest.mark.parametrize(
    ("file", "tokens"),
    [
        (FilePart(data=b"x" * 4_000, media_type="text/csv"), 1_000),
        (FilePart(data=b"x" * 60_000, media_type="application/pdf"), 2_308),
        (FilePart(data=b"x" * 16_000, media_type="audio/mpeg"), 40),
        (FilePart(data=b"x" * 26), 1),
        (FilePart(url="https://example.org/report.pdf"), FILE_UNKNOWN),
        (FilePart(file_id="file-1"), FILE_UNKNOWN),
    ],
)
def test_a_file_is_judged_by_its_size_and_type(file: FilePart, tokens: int) -> None:
    assert message_cost(Message.user([file]), EXACT) == Count(MESSAGE_FRAME + tokens, "estimated")


def test_the_name_of_a_file_is_sent_too() -> None:
    assert texts(Message.user([FilePart(file_id="x", name="report.pdf")])) == ["report.pdf"]


def test_reasoning_costs_its_words_and_a_sealed_thought_its_seal() -> None:
    said = Message.assistant([ReasoningPart(text="hello world", signature="s" * 500), TextPart(text="hi")])
    assert message_cost(said, EXACT) == Count(MESSAGE_FRAME + 2 + 1, "exact")
    sealed = Message.assistant([ReasoningPart(signature="s" * 500), TextPart(text="hi")])
    assert message_cost(sealed, EXACT) == Count(MESSAGE_FRAME + 100 + 1, "estimated")


def test_a_providers_own_block_costs_its_json() -> None:
    part = OpaquePart(format="anthropic", body={"type": "server_tool_use", "id": "x"})
    assert texts(Message.assistant([part])) == ['{"type":"server_tool_use","id":"x"}']


def test_what_is_not_sent_costs_nothing() -> None:
    chat = formats.get("openai-chat")
    plain, decorated = (
        chat.parse([{"role": "user", "content": "hello", **extra}])
        for extra in ({}, {"custom_field": "nobody reads this " * 50})
    )
    assert message_cost(plain[0], EXACT) == message_cost(decorated[0], EXACT)
    twice = Message.user("hello", id="a" * 300, timestamp="2024-01-01T00:00:00Z")
    assert message_cost(twice, EXACT) == message_cost(plain[0], EXACT)


def test_tools_cost_their_definitions() -> None:
    tool = ToolSpec(name="ls", description="List files.", input_schema={"type": "object", "properties": {}})
    letters = Letters()
    cost = tools_cost([tool, tool], letters)
    definition = {
        "name": "ls",
        "description": "List files.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert [json.loads(text) for text in letters.texts] == [definition] * 2
    assert cost == Count(12 + 2 * (7 + len(letters.texts[0])))


def test_no_tools_cost_nothing() -> None:
    assert tools_cost([], EXACT) == Count()


def test_a_conversation_is_the_sum_of_its_parts_and_the_start_of_the_reply() -> None:
    messages = [
        Message.system("Be brief."),
        Message.user("hi"),
        Message.assistant("on it", tool_calls=[call()]),
        answer({"ok": True}),
    ]
    tools = [ToolSpec(name="search")]
    each = [message_cost(message, EXACT).tokens for message in messages]
    whole = conversation_cost(messages, EXACT, tools)
    assert whole == Count(sum(each) + tools_cost(tools, EXACT).tokens + REPLY_START, "exact")
    assert conversation_cost([], EXACT) == Count(REPLY_START)


def test_the_published_rule_for_plain_messages_is_met() -> None:
    messages = [Message.system("You are a helpful assistant."), Message.user("hello world")]
    by_the_book = sum(3 + 1 + EXACT.count(message.text).tokens for message in messages) + 3
    assert conversation_cost(messages, EXACT) == Count(by_the_book)


def test_an_estimating_counter_makes_an_estimate_of_it_all() -> None:
    assert conversation_cost([Message.user("hi")], counter("estimate:claude")).quality == "estimated"


def test_a_meter_counts_every_message_as_alone_and_keeps_the_weakest_quality() -> None:
    messages = [Message.user("hello"), Message.user([ImagePart(data=PNG)]), Message.user("world")]
    meter, qualities = Meter(EXACT), []
    for message in messages:
        assert meter.message(message) == message_cost(message, EXACT).tokens
        qualities.append(meter.quality)
    assert qualities == ["exact", "estimated", "estimated"]


def test_the_texts_of_a_message_are_counted_each_on_its_own() -> None:
    message = Message.assistant("a", tool_calls=[call(), call()])
    alone = [EXACT.count(text).tokens for text in texts(message)]
    assert len(alone) == 5
    assert Meter(EXACT).message(message) == MESSAGE_FRAME + 2 * CALL_FRAME + sum(alone)


def test_claude_gets_instructions_with_its_tools() -> None:
    """Anthropic's page on counting has 403 tokens for this request, and 14 for the one without tools."""
    location = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    weather = ToolSpec(
        name="get_weather",
        description="Get the current weather in a given location",
        input_schema={"type": "object", "properties": {"location": location}, "required": ["location"]},
    )
    asked = [Message.user("What's the weather like in San Francisco?")]
    for name in ("claude-sonnet-4-6", "claude-opus-5-5"):
        counted = conversation_cost(asked, counter_for(name), [weather])
        assert 403 <= counted.tokens <= 403 * 1.2
        assert conversation_cost(asked, counter_for(name)).tokens < 30


def test_newer_models_of_claude_take_about_a_third_more_tokens() -> None:
    text = "The ferry is late again, and the harbor master wants to know why. " * 50
    older, newer = (counter_for(name).count(text).tokens for name in ("claude-opus-4-6", "claude-opus-4-7"))
    assert newer / older == pytest.approx(1.3, abs=0.01)
