"""`same`: what two conversations say to a model, told apart from how it is cut up and named."""

from __future__ import annotations

from typing import Any

import pytest

from turnstate import formats
from turnstate.formats import same
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import FilePart, ImagePart, OpaquePart, ReasoningPart, TextPart

user, assistant, system = Message.user, Message.assistant, Message.system


def call(id: str, name: str = "look", **args: Any) -> ToolCallRequest:
    return ToolCallRequest(id=CallId(id), name=name, args=args)


def result(id: str, value: Any = "fog", *, is_error: bool = False) -> ToolCallResult:
    return ToolCallResult(tool_call_id=CallId(id), result=value, is_error=is_error)


def calls(*requests: ToolCallRequest, content: Any = None) -> Message:
    return assistant(content, tool_calls=requests)


def tool(*results: ToolCallResult) -> Message:
    return Message.tool(results)


def of(format: str, messages: list[Message]) -> list[Message]:
    provider = formats.get(format)
    return provider.parse(provider.render(messages))


LOOKED = [
    user("Look."),
    calls(call("a", at=1), call("b", at=2)),
    tool(result("a", 1), result("b", 2)),
    assistant("Fog."),
]

DIFFERENT: dict[str, list[Message]] = {
    "nothing": [],
    "less": LOOKED[:-1],
    "more": [*LOOKED, user("And?")],
    "another role": [assistant("Look."), *LOOKED[1:]],
    "another text": [user("Look!"), *LOOKED[1:]],
    "a space more": [user("Look. "), *LOOKED[1:]],
    "another order": [LOOKED[-1], *LOOKED[:-1]],
    "another name": [LOOKED[0], calls(call("a", "hear", at=1), call("b", at=2)), *LOOKED[2:]],
    "other arguments": [LOOKED[0], calls(call("a", at=3), call("b", at=2)), *LOOKED[2:]],
    "arguments of another type": [LOOKED[0], calls(call("a", at=1.0), call("b", at=2)), *LOOKED[2:]],
    "arguments that are true": [LOOKED[0], calls(call("a", at=True), call("b", at=2)), *LOOKED[2:]],
    "another result": [*LOOKED[:2], tool(result("a", 1), result("b", 3)), LOOKED[3]],
    "a result as text": [*LOOKED[:2], tool(result("a", 1), result("b", "2 ")), LOOKED[3]],
    "answers swapped between calls": [*LOOKED[:2], tool(result("a", 2), result("b", 1)), LOOKED[3]],
    "calls in another order": [LOOKED[0], calls(call("b", at=2), call("a", at=1)), *LOOKED[2:]],
    "a result missing": [*LOOKED[:2], tool(result("a", 1)), LOOKED[3]],
    "a result twice": [*LOOKED[:2], tool(result("a", 1), result("b", 2), result("a", 1)), LOOKED[3]],
    "an error": [*LOOKED[:2], tool(result("a", 1, is_error=True), result("b", 2)), LOOKED[3]],
    "one call after the other": [
        LOOKED[0],
        calls(call("a", at=1)),
        tool(result("a", 1)),
        calls(call("b", at=2)),
        tool(result("b", 2)),
        LOOKED[3],
    ],
    "a system message": [system("Hurry."), *LOOKED],
    "the user for the tool": [*LOOKED[:2], user("1"), user("2"), LOOKED[3]],
}


@pytest.mark.req("A8")
@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_conversations_that_differ_are_told_apart(other: list[Message]) -> None:
    assert not same(LOOKED, other)
    assert not same(other, LOOKED)
    assert same(other, other)


EQUAL: dict[str, tuple[list[Message], list[Message]]] = {
    "ids are renamed": (
        LOOKED,
        [LOOKED[0], calls(call("x", at=1), call("y", at=2)), tool(result("x", 1), result("y", 2)), LOOKED[3]],
    ),
    "results of a batch are split": (
        LOOKED,
        [*LOOKED[:2], tool(result("a", 1)), tool(result("b", 2)), LOOKED[3]],
    ),
    "results of a batch arrive in another order": (
        LOOKED,
        [*LOOKED[:2], tool(result("b", 2), result("a", 1)), LOOKED[3]],
    ),
    "results arrive late": (
        [*LOOKED[:3], user("Hurry."), LOOKED[3]],
        [*LOOKED[:2], tool(result("b", 2)), user("Hurry."), tool(result("a", 1)), LOOKED[3]],
    ),
    "neighbors of one role are joined": (
        [user("Look."), user("Now."), assistant("Fog."), assistant("Rain.")],
        [user([TextPart("Look."), TextPart("Now.")]), assistant([TextPart("Fog."), TextPart("Rain.")])],
    ),
    "calls of neighbors are one batch": (
        LOOKED,
        [
            LOOKED[0],
            calls(call("a", at=1)),
            calls(call("b", at=2)),
            tool(result("b", 2)),
            tool(result("a", 1)),
            LOOKED[3],
        ],
    ),
    "words stand before, between or behind the calls": (
        [user("Look."), calls(call("a"), call("b"), content="One."), tool(result("a"), result("b"))],
        [user("Look."), calls(call("a")), calls(call("b"), content="One."), tool(result("a"), result("b"))],
    ),
    "the keys of arguments are in another order": (
        [calls(call("a", x=1, y=2))],
        [calls(call("a", y=2, x=1))],
    ),
    "a text is one part": ([user("Look.")], [user([TextPart("Look.")])]),
    "nothing is said in various ways": (
        [user("Look."), assistant("")],
        [user([TextPart("Look."), TextPart(" \n")]), assistant("[empty]"), user("")],
    ),
    "a call comes with empty text or none": ([calls(call("a"), content="")], [calls(call("a"))]),
    "reasoning is private": (
        [assistant([ReasoningPart("Hm.", "sig"), TextPart("Fog.")])],
        [assistant("Fog.")],
    ),
    "a late system message is a notice": (
        [user("Look."), system("Hurry.")],
        [user("Look."), user("[System message] Hurry.")],
    ),
    "a result is JSON or its text": (
        [tool(result("a", {"n": [1, None]}))],
        [tool(result("a", '{"n":[1,null]}'))],
    ),
    "a result is text or one part of it": (
        [tool(result("a", "fog"))],
        [tool(result("a", [{"type": "text", "text": "fog"}]))],
    ),
    "media are what their type says": (
        [user([FilePart(data=b"x", media_type="image/png", name="a")])],
        [user([ImagePart(data=b"x", media_type="image/png", detail="low")])],
    ),
    "media are sent in words": (
        [user([ImagePart(url="https://e.org/a.png")])],
        [user("[image https://e.org/a.png]")],
    ),
    "a provider's block is told in words": (
        [assistant([OpaquePart(format="x", body={}, text="[searched]")])],
        [assistant("[searched]")],
    ),
    "a name comes back as it was sent": (
        [calls(call("a", "files.read"))],
        of("openai-chat", [calls(call("a", "files.read"))]),
    ),
}


@pytest.mark.req("A8")
@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_conversations_that_say_the_same_are_the_same(one: list[Message], other: list[Message]) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.req("A8")
@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_errors_are_not_compared_where_a_format_cannot_carry_them(format: str) -> None:
    failed = [*LOOKED[:2], tool(result("a", 1, is_error=True), result("b", 2)), LOOKED[3]]
    assert same(failed, of(format, failed))
    assert same(LOOKED, of(format, failed))


@pytest.mark.parametrize("format", ["anthropic", "bedrock", "gemini"])
def test_errors_are_compared_where_both_can_carry_them(format: str) -> None:
    failed = [*LOOKED[:2], tool(result("a", 1, is_error=True), result("b", 2)), LOOKED[3]]
    assert same(failed, of(format, failed))
    assert not same(LOOKED, of(format, failed))


def test_media_that_differ_are_told_apart() -> None:
    pictures = [
        ImagePart(data=b"x", media_type="image/png"),
        ImagePart(data=b"y", media_type="image/png"),
        ImagePart(data=b"x", media_type="image/webp"),
        ImagePart(url="https://e.org/a.png"),
        FilePart(url="https://e.org/a"),
        ImagePart(file_id="f"),
    ]
    for place, one in enumerate(pictures):
        for other in pictures[place + 1 :]:
            assert not same([user([one])], [user([other])])


def test_a_result_without_a_call_is_compared_in_its_place() -> None:
    orphan = tool(result("zz", "whose?"))
    assert same([*LOOKED, orphan], [*LOOKED, tool(result("other", "whose?"))])
    assert not same([*LOOKED, orphan], [orphan, *LOOKED])
