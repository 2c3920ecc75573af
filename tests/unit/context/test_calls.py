"""Adding to a list: results find their calls by either id, and what answers nothing is refused."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from turnstate import formats
from turnstate.context import StateManager
from turnstate.errors import InvalidMessage
from turnstate.message import Message, ToolCallRequest, ToolCallResult

pytestmark = pytest.mark.req("A5", "A6")

add = StateManager().append
DISTINCT: list[Any] = [
    0,
    False,
    0.0,
    -0.0,
    "",
    None,
    [],
    {},
    1,
    True,
    1.0,
    "0",
    [0],
    [False],
    {"a": 1},
    {"a": True},
]


def call(name: str = "ls", provider_id: str | None = None) -> ToolCallRequest:
    return ToolCallRequest(name=name, args={}, provider_id=provider_id)


def answer(id: str, result: Any = "done", *, is_error: bool = False) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=id, result=result, is_error=is_error)])


def given(messages: list[Message]) -> dict[str, Any]:
    return {one.tool_call_id: one.result for message in messages for one in message.tool_results}


@pytest.mark.parametrize(("first", "second"), list(permutations(DISTINCT, 2)))
def test_results_that_are_not_the_same_json_are_different_results(first: Any, second: Any) -> None:
    asked = call()
    messages = add([Message.user("go"), Message.assistant(tool_calls=[asked])], answer(asked.id, first))
    with pytest.raises(InvalidMessage, match="already has a different result"):
        add(messages, answer(asked.id, second))


@pytest.mark.parametrize("result", [*DISTINCT, {"a": 1, "b": 2}])
def test_the_same_result_again_is_not_added(result: Any) -> None:
    asked = call()
    messages = add([Message.user("go"), Message.assistant(tool_calls=[asked])], answer(asked.id, result))
    assert add(messages, answer(asked.id, result)) == messages
    if result == {"a": 1, "b": 2}:
        assert add(messages, answer(asked.id, {"b": 2, "a": 1})) == messages
    with pytest.raises(InvalidMessage):
        add(messages, answer(asked.id, result, is_error=True))


def test_a_result_is_found_by_the_providers_id_in_the_newest_batch() -> None:
    old, new = call(provider_id="toolu_1"), call(provider_id="toolu_1")
    messages = [Message.user("go"), Message.assistant(tool_calls=[old])]
    messages = add(messages, answer("toolu_1", "old"))
    messages = [*messages, Message.assistant(tool_calls=[new])]
    messages = add(messages, answer("toolu_1", "new"))
    assert given(messages) == {old.id: "old", new.id: "new"}
    assert add(messages, answer("toolu_1", "new")) == messages
    with pytest.raises(InvalidMessage, match="already has a different result"):
        add(messages, answer("toolu_1", "newer"))
    with pytest.raises(InvalidMessage, match="no call toolu_2"):
        add(messages, answer("toolu_2"))


def test_the_cores_id_comes_before_the_providers() -> None:
    one = call()
    two = call(provider_id=str(one.id))
    messages = [Message.user("go"), Message.assistant(tool_calls=[one, two])]
    assert given(add(messages, answer(one.id))) == {one.id: "done"}


def test_results_under_a_repeated_id_go_to_the_calls_in_order() -> None:
    calls = [call(provider_id="call_0") for _ in range(3)]
    messages = [Message.user("go"), Message.assistant(tool_calls=calls)]
    both = Message.tool([ToolCallResult(tool_call_id="call_0", result=number) for number in (1, 2)])
    messages = add(add(messages, both), answer("call_0", 1))
    assert given(messages) == {calls[0].id: 1, calls[1].id: 2, calls[2].id: 1}
    assert add(messages, answer("call_0", 2)) == messages
    with pytest.raises(InvalidMessage, match="already has a different result"):
        add(messages, answer("call_0", 3))


def test_of_results_that_are_partly_known_the_new_ones_keep_their_providers_fields() -> None:
    anthropic = formats.get("anthropic")
    uses = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in "abc"]
    marks = [{"cache_control": {"type": "ephemeral"}}, {"caller": {"type": "direct"}}, {"of_tomorrow": 1}]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": id, **mark}
        for id, mark in zip("abc", marks, strict=True)
    ]
    asked = [{"role": "user", "content": "go"}, {"role": "assistant", "content": uses}]
    messages = anthropic.parse(asked)
    for known in ([results[1]], [results[0], results[1]], results):
        (message,) = anthropic.parse([{"role": "user", "content": known, "mood": "calm"}])
        messages = add(messages, message)
    sent = anthropic.render(messages)["messages"]
    assert sent == [*asked, {"role": "user", "content": [results[1], results[0], results[2]], "mood": "calm"}]
