"""Rendering: for the provider a message came from, for another one, and for one after the other."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from turnstate import formats
from turnstate.errors import InvalidSetting
from turnstate.formats.gemini import SKIP_SIGNATURE
from turnstate.ids import CallId
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.part import Edit, Native, OpaquePart, ReasoningPart, TextPart
from turnstate.testing import conversations
from turnstate.toolspec import ToolSpec

chat, responses, anthropic, bedrock, gemini = (formats.get(name) for name in formats.names())
EVERY = (chat, responses, anthropic, bedrock, gemini)
each_format = pytest.mark.parametrize("provider", EVERY, ids=lambda provider: provider.name)

CALL_IDS = {
    "openai-chat": r".{1,40}",
    "openai-responses": r".{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]+",
    "bedrock": r"[a-zA-Z0-9_.:-]{1,64}",
    "gemini": r".+",
}


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def call(id: str, name: str = "look", provider_id: str | None = None) -> ToolCallRequest:
    return ToolCallRequest(id=CallId(id), name=name, args={}, provider_id=provider_id)


def calls(*requests: ToolCallRequest, content: Any = None) -> Message:
    return Message.assistant(content, tool_calls=requests)


def tool(*ids: str, result: Any = "fog") -> Message:
    return Message.tool([ToolCallResult(tool_call_id=CallId(id), result=result) for id in ids])


def values(payload: Any, key: str) -> list[Any]:
    """Find what stands under a key, anywhere in a document."""
    if isinstance(payload, dict):
        own = [payload[key]] if key in payload else []
        return own + [found for value in payload.values() for found in values(value, key)]
    return [found for item in payload for found in values(item, key)] if isinstance(payload, list) else []


def sent_ids(payload: Any) -> tuple[list[str], list[str]]:
    """Return the ids of the calls and of the answers of a document, in order."""
    made = values(payload, "tool_calls") or values(payload, "functionCall") or values(payload, "toolUse")
    if made and isinstance(made[0], list):
        return [one["id"] for batch in made for one in batch], values(payload, "tool_call_id")
    if made and "toolUseId" in made[0]:
        return [one["toolUseId"] for one in made], [one["toolUseId"] for one in values(payload, "toolResult")]
    if made:
        return [one["id"] for one in made], [one["id"] for one in values(payload, "functionResponse")]
    if "input" in payload:
        by_type = {
            kind: [one["call_id"] for one in payload["input"] if one["type"] == kind]
            for kind in ("function_call", "function_call_output")
        }
        return by_type["function_call"], by_type["function_call_output"]
    blocks = [
        block for message in payload["messages"] for block in message["content"] if isinstance(block, dict)
    ]
    return [one["id"] for one in blocks if one["type"] == "tool_use"], values(blocks, "tool_use_id")


# Ids and names.


@pytest.mark.req("A4", "A8")
@each_format
def test_ids_are_remapped_to_what_the_provider_takes_and_never_collide(provider: formats.Format) -> None:
    odd = ["call_0", "call_0", "a b", "x" * 41, "x" * 65, "x" * 41 + "y", "通話", "call_2", "a.b:c", "a|b=="]
    messages = [Message.user("Look.")]
    for place, id in enumerate(odd):
        messages += [calls(call(f"call_{place}", provider_id=id)), tool(f"call_{place}")]
    made, answered = sent_ids(provider.render(messages))
    assert made == answered
    assert len(made) == len(odd)
    assert all(re.fullmatch(CALL_IDS[provider.name], id) for id in made)
    if provider is not chat:
        assert len(set(made)) == len(made)
    assert sent_ids(provider.render(messages)) == (made, answered)


@pytest.mark.req("A4")
@each_format
def test_an_id_that_the_core_minted_comes_back_as_itself(provider: formats.Format) -> None:
    request = ToolCallRequest(name="look", args={})
    messages = [Message.user("Look."), calls(request), tool(request.id)]
    back = provider.parse(provider.render(messages))
    assert [one.id for message in back for one in message.tool_calls] == [request.id]
    assert [one.tool_call_id for message in back for one in message.tool_results] == [request.id]


@pytest.mark.req("A8")
@each_format
def test_a_name_outside_the_alphabet_is_sent_as_its_definition_is(provider: formats.Format) -> None:
    odd = "files.read/ü"
    messages = [Message.user("Read."), calls(call("a", odd)), tool("a")]
    rendering = provider.rendering(messages, tools=[ToolSpec(name=odd), ToolSpec(name="look")])
    assert provider.validate(rendering.payload) == []
    names = [spec.name for spec in provider.tools(rendering.payload)]
    sent = [one.name for message in provider.parse(rendering.payload) for one in message.tool_calls]
    assert sent == names[:1]
    assert names[1:] == ["look"]
    assert f"the tool name {odd!r} is sent as {sent[0]}" in [one.text for one in rendering.left_out]


# Tool definitions.


@pytest.mark.req("A8")
@each_format
def test_definitions_that_are_given_are_written_and_read_again(provider: formats.Format) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
    specs = [ToolSpec(name="look", description="Look outside.", input_schema=schema), ToolSpec(name="hear")]
    payload = provider.render([Message.user("Look.")], tools=iter(specs))
    assert provider.tools(payload) == specs
    assert provider.validate(payload) == []


@pytest.mark.req("A8")
@pytest.mark.parametrize(
    ("provider", "tools"),
    [
        (
            chat,
            [
                {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
                {"type": "custom"},
            ],
        ),
        (
            responses,
            [
                {"type": "web_search"},
                {"type": "function", "name": "look", "parameters": {"type": "object"}},
                {"type": "custom", "name": "sh"},
            ],
        ),
        (
            anthropic,
            [
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
                {"name": "look", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
                {"type": "custom", "name": "hear", "input_schema": {"type": "object"}},
            ],
        ),
        (
            gemini,
            [
                {"googleSearch": {}},
                {"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT"}}]},
                {"function_declarations": [{"name": "hear", "parameters_json_schema": {"type": "object"}}]},
            ],
        ),
    ],
)
def test_definitions_are_read_and_a_providers_own_tools_passed_over(
    provider: formats.Format, tools: Any
) -> None:
    specs = provider.tools({"tools": tools})
    assert [spec.name for spec in specs] == ["look", "hear"][: len(specs)]
    assert all(spec.input_schema == {"type": "object"} for spec in specs)
    assert specs


@pytest.mark.req("A8")
def test_the_types_of_geminis_schemas_are_spelled_as_in_json_schema() -> None:
    inner = {"type": "ARRAY", "items": {"type": "STRING", "enum": ["TYPE"]}}
    schema = {"type": "OBJECT", "properties": {"type": inner, "n": {"anyOf": [{"type": "INTEGER"}]}}}
    (spec,) = gemini.tools({"tools": [{"functionDeclarations": [{"name": "look", "parameters": schema}]}]})
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "type": {"type": "array", "items": {"type": "string", "enum": ["TYPE"]}},
            "n": {"anyOf": [{"type": "integer"}]},
        },
    }


@each_format
def test_no_definitions_are_written_where_none_are_given(provider: formats.Format) -> None:
    payload = provider.render([Message.user("Look.")], tools=iter(()))
    assert provider.tools(payload) == []
    assert values(payload, "tools") == []


@pytest.mark.req("A8")
def test_bedrock_gets_a_minimal_definition_of_every_tool_that_was_used() -> None:
    messages = [
        Message.user("Look."),
        calls(call("a"), call("b", "files.read"), call("c")),
        tool("a", "b", "c"),
    ]
    payload = bedrock.render(messages)
    assert bedrock.validate(payload) == []
    names = [spec.name for spec in bedrock.tools(payload)]
    assert names == ["look", payload["messages"][1]["content"][1]["toolUse"]["name"]]
    assert all(spec.input_schema == {"type": "object", "properties": {}} for spec in bedrock.tools(payload))


def test_bedrock_gets_a_definition_where_only_answers_are_left() -> None:
    payload = bedrock.render([Message.user("Look."), Message.assistant("Hm."), tool("a")])
    assert "tool-config" not in [one.rule for one in bedrock.validate(payload)]


@pytest.mark.req("A8")
def test_definitions_that_are_given_take_the_place_of_a_documents_own() -> None:
    document = {
        "model": "claude",
        "tools": [{"name": "old", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Look."}],
    }
    payload = anthropic.render(anthropic.parse(document), tools=[ToolSpec(name="new")])
    assert [tool["name"] for tool in payload["tools"]] == ["new"]
    assert payload["model"] == "claude"


# What is left out.


@pytest.mark.req("A8")
def test_foreign_reasoning_is_left_out_listed_and_kept_in_the_messages() -> None:
    document = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "Fog."},
            ],
        },
    ]
    messages = anthropic.parse(document)
    for provider in (chat, responses, bedrock, gemini):
        rendering = provider.rendering(messages)
        assert "Hm." not in str(rendering.payload)
        assert [(one.index, one.text) for one in rendering.left_out] == [
            (1, "reasoning that this provider did not sign")
        ]
    assert messages[1].content == (ReasoningPart("Hm.", "c2ln"), TextPart("Fog."))
    assert anthropic.render(messages) == {"messages": document}


def test_reasoning_that_nobody_signed_is_left_out() -> None:
    message = Message.assistant([ReasoningPart("Hm."), TextPart("Fog.")])
    for provider in EVERY:
        assert "Hm." not in str(provider.render([Message.user("Look."), message]))


@pytest.mark.req("A8")
def test_a_message_whose_words_change_keeps_its_signed_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    redacted = {"type": "redacted_thinking", "data": "EmwK"}
    document = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [thinking, redacted, {"type": "text", "text": "Fog.", "citations": None}],
        },
    ]
    messages = anthropic.parse(document)
    changed = messages[1].replace(content=(*messages[1].parts[:2], TextPart("Rain.")))
    sent = anthropic.render([messages[0], changed])
    assert sent["messages"][1]["content"] == [thinking, redacted, {"type": "text", "text": "Rain."}]
    assert anthropic.validate(sent) == []


@pytest.mark.req("A8")
def test_stored_reasoning_goes_back_by_its_id_when_its_message_changes() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    spoken = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Fog."}],
    }
    question, answer = responses.parse([{"role": "user", "content": "Look."}, thought, spoken])
    changed = answer.replace(content=(*answer.parts[:1], TextPart("Rain.")))
    sent = responses.render([question, changed])
    assert sent["input"][1] == thought
    assert sent["input"][2]["content"] == [{"type": "output_text", "text": "Rain."}]
    assert "id" not in sent["input"][2]
    assert responses.validate(sent) == []


@pytest.mark.req("A8")
def test_a_provider_gets_its_own_blocks_back_and_others_are_told_of_them() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    message = Message.assistant(
        [OpaquePart(format="anthropic", body=block, text="[searched]"), TextPart("Fog.")]
    )
    assert block in anthropic.render([Message.user("Look."), message])["messages"][1]["content"]
    rendering = gemini.rendering([Message.user("Look."), message])
    assert {"text": "[searched]"} in rendering.payload["contents"][1]["parts"]
    assert [str(one) for one in rendering.left_out] == ["message 1: a block of anthropic"]


@pytest.mark.req("A8")
def test_what_is_left_out_is_told_by_the_index_in_the_list_that_was_given() -> None:
    thought = Message.assistant([ReasoningPart("Hm.", "s"), TextPart("Fog.")])
    messages = [Message.user("Look."), calls(call("a")), Message.user("Hurry."), thought, tool("a"), thought]
    assert [one.index for one in anthropic.rendering(messages).left_out] == [5, 5]
    distinct = [*messages[:5], Message.assistant([ReasoningPart("Hm.", "s"), TextPart("Fog.")])]
    assert [one.index for one in anthropic.rendering(distinct).left_out] == [3, 5]


@pytest.mark.req("A8")
def test_nothing_is_listed_that_the_original_document_still_says() -> None:
    document = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "s3://bucket/a.png"}}]}
    ]
    rendering = chat.rendering(chat.parse(document))
    assert rendering.left_out == ()
    assert rendering.document == document


@pytest.mark.req("A8")
def test_converting_tells_which_fields_and_tools_of_a_request_are_lost() -> None:
    document = {
        "model": "gpt-5",
        "temperature": 1.0,
        "previous_response_id": None,
        "note": "not the provider's",
        "input": "Look.",
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "look", "parameters": {"type": "object"}},
        ],
    }
    rendering = formats.convert(document, responses, anthropic)
    assert [one.text for one in rendering.left_out] == [
        "the request's field `model`",
        "the request's field `temperature`",
        "the provider's own tool web_search",
    ]
    assert [spec.name for spec in anthropic.tools(rendering.payload)] == ["look"]
    assert formats.convert(document, responses, responses).payload == document


def test_converting_from_bedrock_and_gemini_tells_of_their_settings() -> None:
    contents = [{"role": "user", "parts": [{"text": "Look."}]}]
    lost = formats.convert(
        {"contents": contents, "toolConfig": {"mode": "ANY"}, "tools": [{"googleSearch": {}}]}, gemini, chat
    )
    assert [one.text for one in lost.left_out] == [
        "the request's field `toolConfig`",
        "the provider's own tool googleSearch",
    ]
    messages = [{"role": "user", "content": [{"text": "Look."}]}]
    config = {
        "tools": [
            {"toolSpec": {"name": "look", "inputSchema": {"json": {}}}},
            {"cachePoint": {"type": "default"}},
        ]
    }
    lost = formats.convert({"messages": messages, "toolConfig": config}, bedrock, chat)
    assert [one.text for one in lost.left_out] == ["the provider's own tool cachePoint"]


# Signatures.


@pytest.mark.req("A8")
def test_calls_that_gemini_did_not_make_carry_the_signature_that_skips_its_check() -> None:
    payload = gemini.render([Message.user("Look."), calls(call("a"), call("b")), tool("a", "b")])
    parts = payload["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in parts] == [SKIP_SIGNATURE] * 2
    assert gemini.validate({**payload, "model": "gemini-3-pro"}, request=True) == []


@pytest.mark.req("A8")
def test_calls_that_gemini_made_keep_their_own_signature_until_they_change() -> None:
    made = {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"}
    answer = {"functionResponse": {"name": "look", "response": {"sea": "calm"}}}
    question = {"role": "user", "parts": [{"text": "Look."}]}
    document = {
        "contents": [question, {"role": "model", "parts": [made]}, {"role": "user", "parts": [answer]}]
    }
    messages = gemini.parse(document)
    assert gemini.render(messages) == document
    changed = [messages[0], messages[1].replace(content="Let me look."), messages[2]]
    assert gemini.render(changed)["contents"][1]["parts"][-1]["thoughtSignature"] == SKIP_SIGNATURE


# Where a message stands.


@pytest.mark.req("A8")
def test_an_assistant_that_speaks_first_is_given_something_to_answer() -> None:
    messages = [Message.system("Be brief."), Message.assistant("How can I help?"), Message.user("Look.")]
    for provider in EVERY:
        payload = provider.render(messages)
        assert provider.validate(payload) == []
        assert formats.same(messages, provider.parse(payload))
    document = {"messages": [{"role": "assistant", "content": "How can I help?"}]}
    assert anthropic.render(anthropic.parse(document)) == document


@pytest.mark.req("A8")
def test_parallel_calls_in_two_messages_are_one_batch_for_chat() -> None:
    messages = [
        Message.user("Look."),
        calls(call("a"), content="One."),
        calls(call("b"), content="Two."),
        tool("b", "a"),
    ]
    payload = chat.render(messages)
    assert chat.validate(payload) == []
    assert [wire["role"] for wire in payload["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [one["text"] for one in payload["messages"][1]["content"]] == ["One.", "Two."]
    assert formats.same(messages, chat.parse(payload))


@pytest.mark.req("A8")
@pytest.mark.parametrize("provider", [anthropic, bedrock, gemini], ids=lambda provider: provider.name)
def test_a_system_message_that_is_no_longer_first_becomes_a_notice(provider: formats.Format) -> None:
    documents: dict[str, Any] = {
        "anthropic": {"system": [{"type": "text", "text": "Be brief.", "cache_control": {}}], "messages": []},
        "bedrock": {"system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}], "messages": []},
        "gemini": {"system_instruction": "Be brief.", "contents": []},
    }
    (prompt,) = provider.parse(documents[provider.name])
    payload = provider.render([Message.user("Look."), prompt, Message.assistant("Fog.")])
    assert provider.validate(payload) == []
    assert "[System message] Be brief." in str(payload)
    assert payload.keys() & {"system", "systemInstruction", "system_instruction"} == set()


@pytest.mark.req("A8")
@pytest.mark.parametrize("provider", [anthropic, bedrock, gemini], ids=lambda provider: provider.name)
@pytest.mark.parametrize("system", ["", None, []])
def test_an_empty_prompt_that_is_no_longer_first_says_nothing(provider: formats.Format, system: Any) -> None:
    if provider is bedrock and system == "":
        system = []
    key = "systemInstruction" if provider is gemini else "system"
    system = {"parts": []} if provider is gemini and system == [] else system
    prompt = provider.parse({key: system, provider.list_key: []})
    payload = provider.render([Message.user("Look."), *prompt, Message.assistant("Fog.")])
    assert provider.validate(payload) == []


@pytest.mark.req("A8")
def test_a_second_prompt_joins_the_first() -> None:
    document = {"system": [{"type": "text", "text": "Be brief.", "cache_control": {}}], "messages": []}
    messages = [*anthropic.parse(document), Message.system("Be kind."), Message.user("Look.")]
    assert anthropic.render(messages)["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {}},
        {"type": "text", "text": "Be kind."},
    ]
    snake = gemini.parse(
        {"system_instruction": {"role": "system", "parts": [{"text": "Be brief."}]}, "contents": []}
    )
    payload = gemini.render([*snake, Message.system("Be kind."), Message.user("Look.")])
    assert payload["systemInstruction"] == {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]}
    assert "system_instruction" not in payload


@pytest.mark.req("A8")
def test_instructions_that_are_not_first_stay_in_their_place() -> None:
    document = {"instructions": "Be brief.", "input": "Look."}
    messages = responses.parse(document)
    assert responses.render(messages) == document
    kind = Message.system("Be kind.")
    payload = responses.render([kind, *messages, *messages])
    assert [item["content"] for item in payload["input"]] == [
        "Be kind.",
        "Be brief.",
        "Look.",
        "Be brief.",
        "Look.",
    ]
    assert formats.same([kind, *messages], responses.parse(responses.render([kind, *messages])))


@pytest.mark.req("A8")
def test_neighbors_that_a_document_kept_apart_stay_apart_and_new_ones_join() -> None:
    document = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]
    messages = anthropic.parse(document)
    assert anthropic.render(messages) == {"messages": document}
    assert anthropic.render(messages[1:]) == {"messages": document[1:]}
    joined = anthropic.render([messages[0], Message.user("One and a half."), messages[1]])["messages"]
    assert [len(wire["content"]) for wire in joined[:1]] == [2]
    assert joined[1] == document[1]


@pytest.mark.req("A8")
def test_what_stood_in_one_content_is_two_when_something_comes_between() -> None:
    response = {"functionResponse": {"name": "look", "response": {"sea": "calm"}}}
    document = {
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
            {"role": "user", "parts": [response, {"text": "And?"}]},
        ]
    }
    messages = gemini.parse(document)
    assert gemini.render(messages) == document
    between = [*messages[:3], Message.user("Well."), messages[3]]
    payload = gemini.render(between)
    assert gemini.validate(payload) == []
    assert payload["contents"][2:] == [
        {"role": "user", "parts": [response]},
        {"role": "user", "parts": [{"text": "Well."}, {"text": "And?"}]},
    ]


# Provider after provider.


@pytest.mark.req("A4", "A8")
@each_format
@pytest.mark.parametrize("seed", range(6))
def test_a_session_switches_provider_midway_and_back(provider: formats.Format, seed: int) -> None:
    document = provider.render(conversations.valid(seed))
    session = provider.parse(document)
    session += [
        Message.user("Go on."),
        calls(call("n1"), call("n2")),
        tool("n2", "n1"),
        Message.assistant("Done."),
    ]
    for other in EVERY:
        payload = other.render(session)
        assert other.validate(payload) == []
        assert formats.same(session, other.parse(payload))
    kept, before = (payload[provider.list_key] for payload in (provider.render(session), document))
    assert kept[: len(before) - 1] == before[:-1]


@pytest.mark.req("A4", "A8")
@pytest.mark.parametrize("id", ["x" * 60, "functions.look:0", "通話"])
def test_an_answer_to_a_call_with_an_odd_id_goes_by_that_id(id: str) -> None:
    made = {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    document = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [made]},
    ]
    messages = chat.parse(document)
    (request,) = messages[1].tool_calls
    payload = chat.render([*messages, tool(request.id)])["messages"]
    assert payload[:2] == document
    assert payload[2]["tool_call_id"] == id
    other = anthropic.render([*messages, tool(request.id)])
    assert anthropic.validate(other) == []


@pytest.mark.req("A5", "A8")
def test_answers_to_calls_without_ids_are_sent_in_the_order_of_the_calls() -> None:
    made = [{"functionCall": {"name": "look", "args": {"at": place}}} for place in range(3)]
    contents = [{"role": "user", "parts": [{"text": "Look."}]}, {"role": "model", "parts": made}]
    messages = gemini.parse({"contents": contents})
    ids = [one.id for one in messages[1].tool_calls]
    answers = [Message.tool([ToolCallResult(tool_call_id=ids[place], result=place)]) for place in (2, 0, 1)]
    payload = gemini.render([*messages, *answers])
    assert gemini.validate(payload) == []
    assert [part["functionResponse"]["response"]["output"] for part in payload["contents"][2]["parts"]] == [
        0,
        1,
        2,
    ]
    assert values(payload, "id") == []
    assert formats.same([*messages, *answers], gemini.parse(payload))


@pytest.mark.req("A8")
def test_a_changed_message_is_sent_as_it_says_now() -> None:
    document = {
        "model": "m",
        "messages": [
            {"role": "user", "name": "ada", "content": [{"type": "text", "text": "Look.", "cache": True}]}
        ],
    }
    (message,) = chat.parse(document)
    assert chat.render([message.replace(content="Hear.")]) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hear."}],
    }
    assert chat.render([message.replace(timestamp="2025-03-01T09:00:00Z")]) == document


@pytest.mark.req("A8")
@each_format
def test_a_window_without_its_first_message_is_still_a_request(provider: formats.Format) -> None:
    specs = [ToolSpec(name="look")]
    messages = [
        Message.system("Be brief."),
        Message.user("Look."),
        calls(call("a")),
        tool("a"),
        Message.assistant("Fog."),
    ]
    payload = provider.render(messages, tools=specs)
    native = provider.parse({**payload, "note": 1})
    window = [message for message in native if message.role != "system"]
    cut = provider.render(window)
    assert provider.validate(cut) == []
    assert "note" not in cut


@pytest.mark.req("A8")
@each_format
def test_the_original_document_is_not_repaired(provider: formats.Format) -> None:
    torn = [Message.user("Look."), calls(call("a"), call("b")), tool("b"), Message.user("Hurry."), tool("zz")]
    document = provider.render(torn)
    assert provider.validate(document) != []
    assert exact(provider.render(provider.parse(document))) == exact(document)


@pytest.mark.req("A8")
@each_format
@pytest.mark.parametrize(
    "to", [None, 7, "", "text", [], {}, [7], {"instructions": 7}, {"content": 7}, {"parts": 7}]
)
@pytest.mark.parametrize("at", [(), ("content",), ("parts",), ("role",), (0,), ("systemInstruction",)])
def test_edits_that_fit_no_message_do_no_harm(provider: formats.Format, at: tuple[Any, ...], to: Any) -> None:
    native = Native(format=provider.name, edits=(Edit(at, to), Edit((*at, "x")), Edit((*at, 0), to)))
    messages = [
        Message.system("Be brief."),
        Message.user("Look."),
        Message.user("Now."),
        calls(call("a")),
        tool("a"),
    ]
    harmed = [message.replace(native=native) for message in messages]
    provider.validate(provider.render(harmed), request=True)
    provider.validate(provider.render([*harmed[1:], *harmed[:1]]), request=True)


@each_format
def test_no_messages_are_an_empty_document(provider: formats.Format) -> None:
    payload = provider.render([])
    assert payload == {provider.list_key: []}
    assert provider.parse(payload) == []
    assert [one.rule for one in provider.validate(payload)] == ["no-messages"]


def ruin(payload: Any) -> None:
    """Empty everything in a document, from the inside out."""
    for item in payload.values() if isinstance(payload, dict) else payload:
        if isinstance(item, dict | list):
            ruin(item)
    payload.clear()


@pytest.mark.req("A7")
@each_format
def test_whoever_changes_a_document_does_not_change_the_messages(provider: formats.Format) -> None:
    messages = conversations.valid(7)
    document = provider.render(messages, tools=[ToolSpec(name="look")])
    text = exact(document)
    native = provider.parse(document)
    before = provider.parse(document)
    ruin(document)
    assert native == before
    ruin(provider.render(native))
    assert native == before
    assert exact(provider.render(native)) == text
    assert exact(provider.render(messages, tools=[ToolSpec(name="look")])) == text


@pytest.mark.req("A8")
def test_only_messages_and_tool_definitions_are_rendered() -> None:
    wrong: list[Any] = [None, 5, "text", {"role": "user"}, [{"role": "user", "content": "hi"}], [None]]
    for name in formats.names():
        for given in wrong:
            for method in (formats.get(name).render, formats.get(name).request):
                with pytest.raises(InvalidSetting, match="messages"):
                    method(given)
                with pytest.raises(InvalidSetting, match="tools"):
                    method([Message.user("hi")], tools=given)
