from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.acceptance.cli_program import conversation, jsonl, turnstate
from turnstate import formats, tokens

pytestmark = pytest.mark.req("P3")


def cost(payload: Any, counter: str = "o200k_base") -> int:
    chat = formats.get("openai-chat")
    return tokens.conversation_cost(
        chat.parse(payload), tokens.counter(counter), tools=chat.tools(payload)
    ).tokens


def test_one_conversation_is_one_sentence() -> None:
    expected = f"{cost(conversation())} tokens in 5 messages (o200k_base, exact)\n"
    assert turnstate("count", stdin=conversation()) == (0, expected, "")
    assert turnstate("count", "-", stdin=conversation()["messages"]) == (0, expected, "")


def test_one_message_is_not_plural() -> None:
    assert " in 1 message (" in turnstate("count", stdin=[{"role": "user", "content": "hi"}]).out


def test_tool_definitions_of_the_document_are_counted() -> None:
    tool = {"type": "function", "function": {"name": "ls", "description": "List files.", "parameters": {}}}
    with_tools = conversation(tools=[tool])
    (counted,) = turnstate("count", "--json", stdin=with_tools).objects
    assert counted["tokens"] == cost(with_tools) > cost(conversation())


def test_json_of_one_conversation_is_one_object() -> None:
    assert turnstate("count", "--json", stdin=conversation(id="a")).objects == [
        {
            "id": "a",
            "line": None,
            "messages": 5,
            "tokens": cost(conversation()),
            "quality": "exact",
            "counter": "o200k_base",
        }
    ]


def test_json_of_many_is_one_object_a_line() -> None:
    lines = jsonl(conversation(id="a"), conversation(), "", conversation(id=7)["messages"])
    objects = turnstate("count", "--json", stdin=lines).objects
    assert [(one["id"], one["line"]) for one in objects] == [("a", 1), (None, 2), (None, 4)]
    assert {one["tokens"] for one in objects} == {cost(conversation())}


def test_many_get_a_line_each_and_a_total() -> None:
    each = cost(conversation())
    code, out, err = turnstate(
        "count", stdin=jsonl(conversation(id="a\x1b[31m"), conversation(), conversation(id=0))
    )
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert rows == [
        [f"{each} tokens", "5 messages", "exact", r"line 1 (a\x1b[31m)"],
        [f"{each} tokens", "5 messages", "exact", "line 2"],
        [f"{each} tokens", "5 messages", "exact", "line 3 (0)"],
        [f"{each * 3} tokens", "15 messages", "exact", "total of 3"],
    ]


def test_the_counter_can_be_chosen_by_name_or_by_model() -> None:
    by_name = turnstate("count", "--json", "--counter", "cl100k_base", stdin=conversation()).objects[0]
    by_model = turnstate("count", "--json", "--model", "gpt-4", stdin=conversation()).objects[0]
    assert by_name["counter"] == by_model["counter"] == "cl100k_base"
    assert by_name["tokens"] == by_model["tokens"] == cost(conversation(), "cl100k_base")


def test_a_count_that_is_no_more_than_an_estimate_says_so() -> None:
    (counted,) = turnstate("count", "--json", "--model", "claude-sonnet-4-5", stdin=conversation()).objects
    assert counted["quality"] == "estimated"


@pytest.mark.parametrize("name", ["openai-responses", "anthropic", "bedrock", "gemini"])
def test_every_format_is_counted(name: str) -> None:
    converted = turnstate("convert", "--from", "openai-chat", "--to", name, stdin=conversation()).out
    payload = json.loads(converted)
    form = formats.get(name)
    expected = tokens.conversation_cost(
        form.parse(payload), tokens.counter("o200k_base"), tools=form.tools(payload)
    )
    (counted,) = turnstate("count", "--format", name, "--json", stdin=converted).objects
    assert counted["tokens"] == expected.tokens
    assert counted["messages"] == len(payload if isinstance(payload, list) else payload[form.list_key])


def test_an_unknown_model_is_estimated_and_marked_so() -> None:
    code, out, err = turnstate("count", "--model", "frobnicator-9", stdin=conversation())
    assert code == 0
    assert "estimated" in out
    assert err.startswith("turnstate: the model 'frobnicator-9' is not in the catalog")
    assert err.count("\n") == 1
