"""A document that arrives in several appends comes back as if it had come in one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.thoroughness import examples
from turnstate import SessionManager, StateManager, formats
from turnstate.message import Message, minted
from turnstate.stores.memory import MemoryStore

pytestmark = pytest.mark.req("A8")

Items = list[dict[str, Any]]
_MARK = st.fixed_dictionaries({}, optional={"cache_control": st.just({"type": "ephemeral"})})
_TEXT = st.sampled_from(["fog", "rain", '{"a": 1}', "wide\nsea"])
_COUNT = st.integers(1, 3)


def _beside(results: Items, blank: dict[str, Any]) -> st.SearchStrategy[Items]:
    """Return results, perhaps with blank text beside them."""
    before = st.lists(st.booleans(), min_size=len(results) + 1, max_size=len(results) + 1)
    pairs = before.map(lambda drawn: zip(drawn, [*results, None], strict=True))
    return pairs.map(lambda drawn: [one for put, result in drawn for one in (put and blank, result) if one])


def _provider_fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    value = st.sampled_from(["completed", {"type": "direct"}, 7, True])
    return st.fixed_dictionaries({}, optional=dict.fromkeys((*names, "of_tomorrow"), value))


@st.composite
def _chat(draw: st.DrawFn, ids: list[str]) -> Items:
    fields = _provider_fields("annotations_of_ours")
    calls = [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": "{ }"}, **draw(fields)}
        for id in ids
    ]
    results: Items = [
        {"role": "tool", "tool_call_id": id, "content": draw(_TEXT), "name": "look", **draw(fields)}
        for id in draw(st.permutations(ids))
    ]
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
    ]


_KINDS: dict[str, Callable[[str, str], tuple[dict[str, Any], dict[str, Any]]]] = {
    "function": lambda id, text: (
        {"type": "function_call", "call_id": id, "name": "look", "arguments": "{ }", "id": f"fc_{id}"},
        {"type": "function_call_output", "call_id": id, "output": text, "id": f"fco_{id}"},
    ),
    "custom": lambda id, text: (
        {"type": "custom_tool_call", "call_id": id, "name": "sh", "input": text, "id": f"ctc_{id}"},
        {"type": "custom_tool_call_output", "call_id": id, "output": [{"type": "input_text", "text": text}]},
    ),
    "shell": lambda id, text: (
        {"type": "shell_call", "call_id": id, "action": {"commands": [text]}, "status": "completed"},
        {"type": "shell_call_output", "call_id": id, "output": [{"stdout": text}], "max_output_length": 9},
    ),
    "local_shell": lambda id, text: (
        {"type": "local_shell_call", "call_id": id, "id": f"lsh_{id}", "action": {"command": [text]}},
        {"type": "local_shell_call_output", "id": id, "output": text, "status": "completed"},
    ),
    "apply_patch": lambda id, text: (
        {"type": "apply_patch_call", "call_id": id, "operation": {"path": text}, "status": "completed"},
        {"type": "apply_patch_call_output", "call_id": id, "status": "failed", "output": text},
    ),
    "computer": lambda id, text: (
        {"type": "computer_call", "call_id": id, "id": f"cu_{id}", "action": {"type": text}},
        {
            "type": "computer_call_output",
            "call_id": id,
            "output": {"type": "computer_screenshot", "file_id": text},
        },
    ),
    "mcp_approval": lambda id, text: (
        {"type": "mcp_approval_request", "id": id, "server_label": text, "name": "drop", "arguments": "{ }"},
        {"type": "mcp_approval_response", "approval_request_id": id, "approve": True, "reason": text},
    ),
}


@st.composite
def _responses(draw: st.DrawFn, ids: list[str]) -> Items:
    fields = _provider_fields("caller")
    pairs = [_KINDS[draw(st.sampled_from(sorted(_KINDS)))](id, draw(_TEXT)) for id in ids]
    calls = [{**call, **draw(fields)} for call, _ in pairs]
    results = [{**output, **draw(fields)} for _, output in draw(st.permutations(pairs))]
    return [{"role": "user", "content": "Look."}, *calls, *results]


@st.composite
def _anthropic(draw: st.DrawFn, ids: list[str]) -> Items:
    calls = [
        {
            "type": "tool_use",
            "id": id,
            "name": "look",
            "input": {},
            **draw(_MARK),
            **draw(_provider_fields("caller")),
        }
        for id in ids
    ]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": id,
            "content": draw(_TEXT),
            **draw(_MARK),
            **draw(_provider_fields()),
        }
        for id in draw(st.permutations(ids))
    ]
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": draw(_beside(results, {"type": "text", "text": "\n"}))},
        {"role": "assistant", "content": "So."},
    ]


@st.composite
def _bedrock(draw: st.DrawFn, ids: list[str]) -> Items:
    fields = _provider_fields("type")
    calls = [{"toolUse": {"toolUseId": id, "name": "look", "input": {}, **draw(fields)}} for id in ids]
    results = [
        {
            "toolResult": {
                "toolUseId": id,
                "content": [{"text": draw(_TEXT)}],
                "status": "success",
                **draw(fields),
            }
        }
        for id in draw(st.permutations(ids))
    ]
    return [
        {"role": "user", "content": [{"text": "Look."}]},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": draw(_beside(results, {"text": " "}))},
        {"role": "assistant", "content": [{"text": "So."}]},
    ]


@st.composite
def _gemini(draw: st.DrawFn, ids: list[str]) -> Items:
    fields = _provider_fields("scheduling")
    named = draw(st.booleans())  # the Gemini API gives calls no ids

    def call(id: str) -> dict[str, Any]:
        return {"id": id, "name": "look"} if named else {"name": "look"}

    calls = [{"functionCall": {**call(id), "args": {}}, "thoughtSignature": "c2ln"} for id in ids]
    results = [
        {"functionResponse": {**call(id), "response": {"output": draw(_TEXT)}, **draw(fields)}} for id in ids
    ]
    return [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": calls},
        {"role": "user", "parts": results},
        {"role": "model", "parts": [{"text": "So."}]},
    ]


ROUNDS = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "gemini": _gemini,
}


@st.composite
def appends(draw: st.DrawFn) -> tuple[str, list[Items]]:
    """Return a document in the pieces in which it arrives; ids may be such that the provider rejects them."""
    name = draw(st.sampled_from(sorted(ROUNDS)))
    prefix = draw(st.sampled_from(["toolu_", "c" * 70, "é."]))
    items: Items = []
    for number in range(draw(st.integers(1, 3))):
        ids = [f"{prefix}{number}{letter}" for letter in "abc"[: draw(_COUNT)]]
        items += draw(ROUNDS[name](ids))
    cuts = sorted(draw(st.sets(st.integers(1, len(items) - 1))))
    return name, [items[start:end] for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)]


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


async def through_session(pieces: list[list[Message]]) -> list[Message]:
    async with SessionManager(MemoryStore()) as sessions:
        session = await sessions.create()
        for messages in pieces:
            await session.append(*messages)
        return list(await session.messages())


@examples(40, long=2_000)
@given(given=appends())
def test_a_document_in_several_appends_is_the_document_in_one(given: tuple[str, list[Items]]) -> None:
    name, pieces = given
    format = formats.get(name)
    whole = [item for piece in pieces for item in piece]
    assert exact(format.render(format.parse(whole))[format.list_key]) == exact(whole)
    read = [format.parse(piece) for piece in pieces]
    grown: list[Message] = []
    for piece in read:
        for message in minted(piece):
            grown = StateManager().append(grown, message)
    assert exact(format.render(grown)[format.list_key]) == exact(whole)
    kept = asyncio.run(through_session(read))
    assert exact(format.render(kept)[format.list_key]) == exact(whole)
