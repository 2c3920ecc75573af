"""The scripted model plays what a test wrote for it, and waits for nothing but the test."""

from __future__ import annotations

import asyncio

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
    Reply,
    TextDelta,
    UsageReported,
    complete,
)
from turnstate.part import ImagePart, ReasoningPart, TextPart
from turnstate.testing import ScriptedModel

CALL = ToolCallRequest(name="ls", args={"path": "."})


def asking(text: str) -> ModelRequest:
    return ModelRequest(messages=(Message.user(text),))


def answer(model: Model, text: str = "hi") -> Completion:
    return asyncio.run(complete(model, asking(text)))


async def events(model: Model) -> list[ModelEvent]:
    return [event async for event in model.stream(asking("hi"))]


async def fold(model: Model, reply: Reply) -> None:
    async for event in model.stream(asking("hi")):
        reply.add(event)


def said(reply: Reply) -> str:
    message = reply.message()
    return message.text if message else ""


@pytest.mark.req("M2")
def test_replies_come_in_order_and_requests_are_remembered() -> None:
    model = ScriptedModel("one", "two")
    assert [answer(model, "a").message.text, answer(model, "b").message.text] == ["one", "two"]
    assert [request.messages[0].text for request in model.requests] == ["a", "b"]
    assert model.left == 0


@pytest.mark.parametrize("text", ["Hello there,\n\n  world \n", "", " ", "夜間バッチ"])
def test_a_text_comes_in_pieces_and_whole_in_the_end(text: str) -> None:
    assert answer(ScriptedModel(text)).message.content == text
    assert len(asyncio.run(events(ScriptedModel("a b c")))) == 4


@pytest.mark.parametrize(
    "message",
    [
        Message.assistant("on it", tool_calls=[CALL]),
        Message.assistant(tool_calls=[CALL, ToolCallRequest(name="pwd", args={})]),
        Message.assistant(
            [ReasoningPart("hm", "sig"), TextPart("a b"), ImagePart(url="https://example.org/a")]
        ),
        Message.assistant([ReasoningPart("hm"), TextPart("a")], tool_calls=[CALL]),
    ],
)
def test_a_message_is_said_as_it_is(message: Message) -> None:
    done = answer(ScriptedModel(message))
    assert (done.message.content, done.message.tool_calls) == (message.content, message.tool_calls)
    assert done.reason == ("tool_calls" if message.tool_calls else "stop")


def test_a_list_is_played_as_it_stands() -> None:
    usage = UsageReported(input=5, output=1)
    done = answer(ScriptedModel(["Hel", TextDelta("lo"), usage, Finished("length")]))
    assert (done.message.text, done.usage, done.reason) == ("Hello", usage, "length")


def test_a_list_without_an_end_is_a_stream_that_breaks_off() -> None:
    with pytest.raises(ModelFailed) as caught:
        answer(ScriptedModel(["half"]))
    assert caught.value.partial is not None
    assert caught.value.partial.text == "half"


def test_an_exception_is_raised_and_the_next_request_gets_the_next_reply() -> None:
    model = ScriptedModel(ModelFailed("overloaded"), "fine now")
    with pytest.raises(ModelFailed, match="overloaded"):
        answer(model)
    assert answer(model).message.text == "fine now"


def test_an_exception_in_a_list_is_raised_in_the_middle_of_the_stream() -> None:
    async def scene() -> str:
        reply = Reply()
        with pytest.raises(ConnectionResetError):
            await fold(ScriptedModel(["half", ConnectionResetError()]), reply)
        return said(reply)

    assert asyncio.run(scene()) == "half"


def test_a_function_answers_the_request() -> None:
    model = ScriptedModel(
        lambda request: f"you said {request.messages[0].text}",
        lambda request: Message.assistant(str(len(request.tools))),
    )
    assert answer(model, "hello").message.text == "you said hello"
    assert answer(model).message.text == "0"


def test_an_event_holds_the_stream_where_it_stands_until_the_test_lets_it_go() -> None:
    async def scene() -> tuple[str, str]:
        go, reply = asyncio.Event(), Reply()
        model = ScriptedModel(["before", go, " after", Finished()])
        task = asyncio.create_task(fold(model, reply))
        while not said(reply):
            await asyncio.sleep(0)
        before = said(reply)
        go.set()
        await task
        return before, said(reply)

    assert asyncio.run(scene()) == ("before", "before after")


def test_a_held_model_answers_nothing_until_it_is_let_go() -> None:
    async def scene() -> str:
        go = asyncio.Event()
        model = ScriptedModel("now", hold=go)
        task = asyncio.create_task(complete(model, asking("hi")))
        while not model.requests:
            await asyncio.sleep(0)
        assert not task.done()
        go.set()
        return (await task).message.text

    assert asyncio.run(scene()) == "now"


def test_a_held_stream_can_be_cancelled() -> None:
    async def scene() -> None:
        model = ScriptedModel("never", hold=asyncio.Event())
        task = asyncio.create_task(complete(model, asking("hi")))
        while not model.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())


def test_a_request_beyond_the_script_says_which_one() -> None:
    model = ScriptedModel("only", name="short")
    assert model.left == 1
    answer(model)
    with pytest.raises(TurnstateError, match="short has no reply for request 2"):
        answer(model)
    assert model.left == 0
