"""Requests mark for prompt caches what the next ones will begin with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from turnstate.models.cache_marks import marked_for_anthropic, marked_for_bedrock, takes_marks


@pytest.mark.req("M2")
def test_anthropic_gets_marks_on_what_the_next_request_begins_with() -> None:
    text = {"type": "text", "text": "It burns."}
    request = {
        "system": "You keep a lighthouse.",
        "tools": [{"name": "look"}, {"name": "listen"}],
        "messages": [
            {"role": "user", "content": "How is the lamp?"},
            {"role": "assistant", "content": [text, {"type": "thinking", "thinking": "x", "signature": "y"}]},
            {"role": "user", "content": "And the sea?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "fog"}]},
        ],
    }
    marked = marked_for_anthropic(request)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert marked["tools"] == [{"name": "look"}, {"name": "listen"} | mark]
    assert marked["system"] == [{"type": "text", "text": "You keep a lighthouse."} | mark]
    assert [json.dumps(one).count("cache_control") for one in marked["messages"]] == [0, 1, 0, 0, 1]
    assert marked["messages"][1]["content"][0] == text | mark
    assert "cache_control" not in json.dumps(request)
    for own in (request | mark, request | {"system": [text | mark]}, marked):
        assert marked_for_anthropic(own) is own
    assert marked_for_anthropic({"messages": request["messages"][:1]})["messages"][0]["content"][0][
        "cache_control"
    ]


POINT = {"cachePoint": {"type": "default"}}


@pytest.mark.req("M2")
def test_requests_to_bedrock_mark_what_is_stable_as_the_sdk_takes_it() -> None:
    shape = Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
    use = {"toolUse": {"toolUseId": "1", "name": "look", "input": {}}}
    schema = {"json": {"type": "object"}}
    request: dict[str, Any] = {
        "modelId": "m",
        "system": [{"text": "You keep a lighthouse."}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": schema}}]},
        "messages": [
            {"role": "user", "content": [{"text": "Is the lamp lit?"}]},
            {"role": "assistant", "content": [{"text": "Yes."}]},
            {"role": "user", "content": [{"text": "And the sea?"}]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "fog"}]}}]},
        ],
    }
    marked = marked_for_bedrock(request)
    assert not ParamValidator().validate(marked, shape).has_errors()
    assert marked["system"] == [*request["system"], POINT]
    assert marked["toolConfig"]["tools"] == [*request["toolConfig"]["tools"], POINT]
    assert [one["content"].count(POINT) for one in marked["messages"]] == [0, 1, 0, 0, 1]
    assert all(one["content"][-1] == POINT for one in marked["messages"] if POINT in one["content"])
    assert "cachePoint" not in json.dumps(request)
    assert marked_for_bedrock(marked) is marked
    assert POINT not in marked_for_bedrock(request, tools=False)["toolConfig"]["tools"]


@pytest.mark.req("M2")
def test_only_models_of_bedrock_that_take_marks_get_them_by_default() -> None:
    taking = ["us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic.claude-3-7-sonnet-20250219-v1:0"]
    taking += ["anthropic.claude-3-5-haiku-20241022-v1:0", "eu.anthropic.claude-opus-4-20250514-v1:0"]
    others = ["amazon.nova-pro-v1:0", "meta.llama3-70b-instruct-v1:0", "anthropic.claude-v2:1"]
    others += ["anthropic.claude-instant-v1", "anthropic.claude-3-haiku-20240307-v1:0"]
    assert [takes_marks(one) for one in taking + others] == [True] * len(taking) + [False] * len(others)
