"""A stream of events folds into the assistant's message, whole or as far as it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from turnstate.errors import TurnstateError
from turnstate.message import Message, ToolCallRequest
from turnstate.models import (
    Completion,
    Finished,
    Model,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    PartMade,
    ReasoningDelta,
    Reply,
    Retried,
    TextDelta,
    ToolCallMade,
    UsageReported,
    complete,
)
from turnstate.part import ImagePart, OpaquePart, ReasoningPart, TextPart

REQUEST = ModelRequest(messages=(Message.user("hi"),))
CALL = ToolCallRequest(name="ls", args={"path": "."})
PICTURE = ImagePart(url="https://example.org/a.png")


class Player:
    """The least that is a model."""

    name = "player"

    def __init__(self, events: Sequence[ModelEvent]) -> None:
        self.events = events

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for event in self.events:
            yield event


def completed(*events: ModelEvent) -> Completion:
    model: Model = Player(events)
    return asyncio.run(complete(model, REQUEST, id="m1", timestamp="2025-01-01T00:00:00Z"))


@pytest.mark.req("M2")
def test_text_in_pieces_becomes_one_plain_text() -> None:
    done = completed(TextDelta("Hel"), TextDelta(""), TextDelta("lo"), Finished())
    assert done.message == Message.assistant("Hello", id="m1", timestamp="2025-01-01T00:00:00Z")
    assert (done.usage, done.reason) == (None, "stop")


def test_calls_without_words_have_no_content() -> None:
    done = completed(ToolCallMade(CALL), Finished("tool_calls"))
    assert done.message.content is None
    assert done.message.tool_calls == (CALL,)
    assert done.reason == "tool_calls"


def test_an_answer_that_says_nothing_is_an_empty_text() -> None:
    assert completed(Finished()).message.content == ""
    assert completed(TextDelta(""), ReasoningDelta(""), Finished()).message.content == ""


def test_parts_stay_in_the_order_in_which_they_came() -> None:
    opaque = OpaquePart(format="anthropic", body={"type": "redacted_thinking", "data": "x"})
    done = completed(
        ReasoningDelta("let me "),
        ReasoningDelta("think"),
        ReasoningDelta(signature="sig"),
        ReasoningDelta("again"),
        TextDelta("one"),
        PartMade(PICTURE),
        PartMade(opaque),
        TextDelta("two"),
        ToolCallMade(CALL),
        TextDelta(" three"),
        Finished(),
    )
    assert done.message.content == (
        ReasoningPart("let me think", "sig"),
        ReasoningPart("again"),
        TextPart("one"),
        PICTURE,
        opaque,
        TextPart("two three"),
    )


@pytest.mark.req("M2")
def test_the_last_report_of_usage_counts_wherever_it_comes() -> None:
    first, last = UsageReported(input=10, output=0), UsageReported(input=10, output=7, cached=4)
    assert completed(first, TextDelta("a"), Finished(), last).usage == last


def test_a_character_that_was_torn_apart_is_whole_again() -> None:
    assert completed(TextDelta("\ud83d"), TextDelta("\ude00"), Finished()).message.content == "😀"
    assert completed(TextDelta("a\ud83d"), Finished()).message.content == "a\ufffd"


def test_a_stream_that_breaks_off_is_a_failure_that_brings_what_came() -> None:
    with pytest.raises(ModelFailed, match="player was interrupted") as caught:
        completed(TextDelta("half an ans"))
    assert isinstance(caught.value, TurnstateError)
    assert caught.value.partial is not None
    assert caught.value.partial.text == "half an ans"


@pytest.mark.req("M2")
def test_nothing_is_left_of_an_answer_whose_request_was_sent_again() -> None:
    again = Retried(attempt=1, pause=0.0, reason="the connection was lost")
    done = completed(
        *(ReasoningDelta("hm"), TextDelta("Hal"), ToolCallMade(CALL), UsageReported(input=1, output=1)),
        *(again, TextDelta("Hello"), Finished()),
    )
    assert (done.message.content, done.message.tool_calls, done.usage) == ("Hello", (), None)


def test_a_stream_that_breaks_off_at_once_brings_nothing() -> None:
    with pytest.raises(ModelFailed) as caught:
        completed(UsageReported(input=1, output=0))
    assert caught.value.partial is None


def test_looking_at_a_reply_on_the_way_does_not_change_it() -> None:
    events = [
        ReasoningDelta("a"),
        ReasoningDelta("b", "sig"),
        TextDelta("c"),
        TextDelta("d"),
        ToolCallMade(CALL),
    ]
    watched, left_alone = Reply(), Reply()
    for event in events:
        watched.add(event)
        watched.message()
        assert watched.completion() is None
        left_alone.add(event)
    one, other = watched.message(id="m"), left_alone.message(id="m")
    assert one is not None
    assert other is not None
    assert one.content == other.content == (ReasoningPart("ab", "sig"), TextPart("cd"))


def test_many_pieces_cost_no_more_than_their_length() -> None:
    done = completed(*[TextDelta("word ")] * 50_000, Finished("length"))
    assert len(done.message.text) == 250_000


@pytest.mark.parametrize(
    "event",
    [
        TextDelta("a"),
        ReasoningDelta("a", "s"),
        PartMade(PICTURE),
        ToolCallMade(CALL),
        UsageReported(input=1, output=2),
        Retried(attempt=2, pause=0.5, reason="429"),
        Finished("length"),
    ],
)
def test_events_are_a_tagged_union_that_survives_json(event: ModelEvent) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=ModelEvent) == event
