"""Responses as five providers send them, whole and in chunks, with what a message of them has to say.

``KINDS`` names the SDK's types of responses and chunks; boto3 has dicts. The chunks of a sample add up to the
same reply as its response.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["REPLIES", "Reply", "sdk_object"]


class Reply(NamedTuple):
    provider: str
    name: str
    response: dict[str, Any]
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    usage: tuple[int, int, int] = (0, 0, 0)
    chunks: tuple[dict[str, Any], ...] = ()
    bad: tuple[str, ...] = ()  # the raw arguments of calls that are not JSON


KINDS = {
    "openai-chat": ("openai.types.chat", "ChatCompletion", "ChatCompletionChunk"),
    "openai-responses": ("openai.types.responses", "Response", None),
    "anthropic": ("anthropic.types", "Message", None),
    "gemini": ("google.genai.types", "GenerateContentResponse", "GenerateContentResponse"),
}


def sdk_object(provider: str, body: dict[str, Any], *, chunk: bool = False) -> Any:
    """Return a body as the provider's SDK returns it."""
    if provider not in KINDS:
        return body
    module, whole, piece = KINDS[provider]
    name = piece if chunk else whole
    return body if name is None else getattr(import_module(module), name).model_validate(body)


def _chat(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1761368591,
        "model": "gpt-4o-2024-08-06",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "refusal": None, "annotations": [], **message},
                "logprobs": None,
                "finish_reason": finish,
            }
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        },
        "system_fingerprint": "fp_1",
    }


def _chat_chunks(*deltas: dict[str, Any], finish: str = "stop") -> tuple[dict[str, Any], ...]:
    frame = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1761368591,
        "model": "gpt-4o-2024-08-06",
        "system_fingerprint": "fp_1",
    }
    chunks = [{**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return (*chunks, end, {**frame, "choices": [], "usage": _chat({})["usage"]})


_CHAT_CALLS = {
    "content": None,
    "tool_calls": [
        {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}},
        {"id": "call_1", "type": "function", "function": {"name": "listen", "arguments": "{}"}},
    ],
}
_CALLS = (("look", {"at": "sea"}), ("listen", {}))

_CHAT = [
    Reply(
        "openai-chat",
        "text",
        _chat({"content": "There is fog."}),
        "There is fog.",
        usage=(100, 20, 64),
        chunks=_chat_chunks(
            {"role": "assistant", "content": "", "refusal": None},
            {"content": "There "},
            {"content": "is fog."},
        ),
    ),
    Reply(
        "openai-chat",
        "parallel tools",
        _chat(_CHAT_CALLS, "tool_calls"),
        calls=_CALLS,
        usage=(100, 20, 64),
        chunks=_chat_chunks(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "look", "arguments": ""},
                    }
                ],
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"at": '}}]},
            {
                "tool_calls": [
                    {
                        "index": 1,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "listen", "arguments": ""},
                    }
                ]
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '"sea"}'}}]},
            {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
            finish="tool_calls",
        ),
    ),
    Reply(
        "openai-chat",
        "refusal",
        _chat({"content": None, "refusal": "I cannot do that."}),
        "I cannot do that.",
        usage=(100, 20, 64),
        chunks=_chat_chunks(
            {"role": "assistant", "content": None}, {"refusal": "I cannot "}, {"refusal": "do that."}
        ),
    ),
    Reply(
        "openai-chat",
        "audio",
        _chat(
            {
                "content": None,
                "audio": {
                    "id": "audio_1",
                    "data": "UklGRg==",
                    "expires_at": 1761368599,
                    "transcript": "Fog.",
                },
            }
        ),
        "Fog.",
        usage=(100, 20, 64),
        chunks=_chat_chunks(
            {"role": "assistant", "content": None, "audio": {"id": "audio_1", "transcript": "Fo"}},
            {"audio": {"data": "UklG"}},
            {"audio": {"data": "Rg==", "transcript": "g."}},
            {"audio": {"expires_at": 1761368599}},
        ),
    ),
    Reply(
        "openai-chat",
        "citations",
        _chat(
            {
                "content": "Fog, says the harbor.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {
                            "start_index": 0,
                            "end_index": 3,
                            "title": "Harbor",
                            "url": "https://harbor.example/fog",
                        },
                    }
                ],
            }
        ),
        "Fog, says the harbor.",
        usage=(100, 20, 64),
    ),
    Reply("openai-chat", "empty", _chat({"content": None}), "", usage=(100, 20, 64)),
    Reply(
        "openai-chat",
        "no tool calls",
        _chat({"content": "Fog.", "tool_calls": []}),
        "Fog.",
        usage=(100, 20, 64),
    ),
    Reply(
        "openai-chat",
        "bad arguments",
        _chat(
            {
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": "se'},
                    },
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "[1]"}},
                ],
            },
            "length",
        ),
        calls=(("look", {}), ("look", {})),
        usage=(100, 20, 64),
        bad=('{"at": "se', "[1]"),
        chunks=_chat_chunks(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "look", "arguments": ""},
                    }
                ],
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"at": "se'}}]},
            {
                "tool_calls": [
                    {
                        "index": 1,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": "[1]"},
                    }
                ]
            },
            finish="length",
        ),
    ),
]


def _responses(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1761368591,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-5",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 8},
            "total_tokens": 120,
        },
        **fields,
    }


def _responses_events(response: dict[str, Any], *texts: str) -> tuple[dict[str, Any], ...]:
    deltas = [
        {
            "type": "response.output_text.delta",
            "delta": text,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "sequence_number": 2,
            "logprobs": [],
        }
        for text in texts
    ]
    begun = {"type": "response.created", "sequence_number": 0, "response": _responses(status="in_progress")}
    return (begun, *deltas, {"type": "response.completed", "sequence_number": 9, "response": response})


def _said(*content: dict[str, Any], id: str = "msg_1") -> dict[str, Any]:
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": list(content)}


def _output_text(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def _function(name: str, arguments: str, number: int) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


_THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
_FOG = _responses(_said(_output_text("There is fog.")))

_RESPONSES = [
    Reply(
        "openai-responses",
        "text",
        _FOG,
        "There is fog.",
        usage=(100, 20, 64),
        chunks=_responses_events(_FOG, "There ", "is fog."),
    ),
    Reply(
        "openai-responses",
        "reasoning, text and parallel tools",
        _responses(
            {**_THOUGHT, "encrypted_content": "c2ln"},
            _said(_output_text("Let me look.")),
            _function("look", '{"at": "sea"}', 0),
            _function("listen", "{}", 1),
        ),
        "Let me look.",
        calls=_CALLS,
        usage=(100, 20, 64),
    ),
    Reply(
        "openai-responses",
        "reasoning between calls, and words after them",
        _responses(
            _THOUGHT,
            _function("look", '{"at": "sea"}', 0),
            {**_THOUGHT, "id": "rs_2"},
            _function("listen", "{}", 1),
            _said(_output_text("One moment."), id="msg_1"),
            _said(_output_text("Or two."), id="msg_2"),
        ),
        "One moment.\nOr two.",
        calls=_CALLS,
        usage=(100, 20, 64),
    ),
    Reply(
        "openai-responses",
        "refusal",
        _responses(_said({"type": "refusal", "refusal": "I cannot do that."})),
        "I cannot do that.",
        usage=(100, 20, 64),
    ),
    Reply(
        "openai-responses",
        "citations and a hosted tool",
        _responses(
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "fog", "queries": ["fog"]},
            },
            _said(
                _output_text(
                    "Fog.",
                    {
                        "type": "url_citation",
                        "start_index": 0,
                        "end_index": 3,
                        "title": "Harbor",
                        "url": "https://harbor.example/fog",
                    },
                )
            ),
        ),
        "Fog.",
        usage=(100, 20, 64),
    ),
    Reply("openai-responses", "empty", _responses(), "", usage=(100, 20, 64)),
    Reply(
        "openai-responses",
        "bad arguments",
        _responses(
            _function("look", '{"at": "se', 0),
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
        calls=(("look", {}),),
        usage=(100, 20, 64),
        bad=('{"at": "se',),
    ),
]


def _anthropic(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 30,
            "cache_creation_input_tokens": 6,
            "cache_read_input_tokens": 64,
            "output_tokens": 20,
        },
    }


def _anthropic_events(
    *blocks: tuple[dict[str, Any], list[dict[str, Any]]], stop: str = "end_turn"
) -> tuple[dict[str, Any], ...]:
    start = _anthropic() | {"stop_reason": None}
    start["usage"] = {**start["usage"], "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}})
    return (*events, {"type": "message_stop"})


def _use(id: str, name: str, input: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


_CITATION = {
    "type": "char_location",
    "cited_text": "fog",
    "document_index": 0,
    "document_title": "Harbor",
    "start_char_index": 0,
    "end_char_index": 3,
    "file_id": None,
}

_ANTHROPIC = [
    Reply(
        "anthropic",
        "text",
        _anthropic({"type": "text", "text": "There is fog.", "citations": None}),
        "There is fog.",
        usage=(100, 20, 64),
        chunks=_anthropic_events(
            (
                {"type": "text", "text": "", "citations": None},
                [{"type": "text_delta", "text": "There "}, {"type": "text_delta", "text": "is fog."}],
            )
        ),
    ),
    Reply(
        "anthropic",
        "thinking, redacted thinking, text and parallel tools",
        _anthropic(
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "text", "text": "Let me look.", "citations": None},
            _use("toolu_1", "look", {"at": "sea"}),
            _use("toolu_2", "listen", {}),
            stop="tool_use",
        ),
        "Let me look.",
        calls=_CALLS,
        usage=(100, 20, 64),
        chunks=_anthropic_events(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [
                    {"type": "thinking_delta", "thinking": "H"},
                    {"type": "thinking_delta", "thinking": "m."},
                    {"type": "signature_delta", "signature": "c2ln"},
                ],
            ),
            ({"type": "redacted_thinking", "data": "ZGF0YQ=="}, []),
            (
                {"type": "text", "text": "", "citations": None},
                [{"type": "text_delta", "text": "Let me look."}],
            ),
            (
                _use("toolu_1", "look", {}),
                [
                    {"type": "input_json_delta", "partial_json": ""},
                    {"type": "input_json_delta", "partial_json": '{"at": '},
                    {"type": "input_json_delta", "partial_json": '"sea"}'},
                ],
            ),
            (_use("toolu_2", "listen", {}), []),
            stop="tool_use",
        ),
    ),
    Reply(
        "anthropic",
        "citations",
        _anthropic({"type": "text", "text": "There is fog.", "citations": [_CITATION]}),
        "There is fog.",
        usage=(100, 20, 64),
        chunks=_anthropic_events(
            (
                {"type": "text", "text": "", "citations": []},
                [
                    {"type": "citations_delta", "citation": _CITATION},
                    {"type": "text_delta", "text": "There is fog."},
                ],
            )
        ),
    ),
    Reply("anthropic", "empty", _anthropic(), "", usage=(100, 20, 64)),
    Reply(
        "anthropic",
        "words after a call",
        _anthropic(_use("toolu_1", "look", {"at": "sea"}), {"type": "text", "text": "Soon."}),
        "Soon.",
        calls=_CALLS[:1],
        usage=(100, 20, 64),
    ),
    Reply(
        "anthropic",
        "bad arguments",
        _anthropic(_use("toolu_1", "look", {"_unparsed": '{"at": "se'}), stop="max_tokens"),
        calls=(("look", {}),),
        usage=(100, 20, 64),
        bad=('{"at": "se',),
        chunks=_anthropic_events(
            (_use("toolu_1", "look", {}), [{"type": "input_json_delta", "partial_json": '{"at": "se'}]),
            stop="max_tokens",
        ),
    ),
]


def _bedrock(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {
        "ResponseMetadata": {"RequestId": "r-1", "HTTPStatusCode": 200, "RetryAttempts": 0},
        "output": {"message": {"role": "assistant", "content": list(content)}},
        "stopReason": stop,
        "usage": {
            "inputTokens": 30,
            "outputTokens": 20,
            "totalTokens": 120,
            "cacheReadInputTokens": 64,
            "cacheWriteInputTokens": 6,
        },
        "metrics": {"latencyMs": 700},
    }


def _bedrock_events(
    *blocks: tuple[dict[str, Any] | None, list[dict[str, Any]]], stop: str = "end_turn"
) -> tuple[dict[str, Any], ...]:
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    for index, (start, deltas) in enumerate(blocks):
        if start is not None:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    reported = {"usage": _bedrock()["usage"], "metrics": {"latencyMs": 700}}
    return (*events, {"messageStop": {"stopReason": stop}}, {"metadata": reported})


_BEDROCK = [
    Reply(
        "bedrock",
        "text",
        _bedrock({"text": "There is fog."}),
        "There is fog.",
        usage=(100, 20, 64),
        chunks=_bedrock_events((None, [{"text": "There "}, {"text": "is fog."}])),
    ),
    Reply(
        "bedrock",
        "reasoning, redacted reasoning and parallel tools",
        _bedrock(
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
            {"reasoningContent": {"redactedContent": b"data"}},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"at": "sea"}}},
            {"toolUse": {"toolUseId": "tooluse_2", "name": "listen", "input": {}}},
            stop="tool_use",
        ),
        calls=_CALLS,
        usage=(100, 20, 64),
        chunks=_bedrock_events(
            (
                None,
                [
                    {"reasoningContent": {"text": "H"}},
                    {"reasoningContent": {"text": "m."}},
                    {"reasoningContent": {"signature": "c2ln"}},
                ],
            ),
            (None, [{"reasoningContent": {"redactedContent": b"data"}}]),
            (
                {"toolUse": {"toolUseId": "tooluse_1", "name": "look"}},
                [{"toolUse": {"input": '{"at": '}}, {"toolUse": {"input": '"sea"}'}}],
            ),
            ({"toolUse": {"toolUseId": "tooluse_2", "name": "listen"}}, []),
            stop="tool_use",
        ),
    ),
    Reply("bedrock", "empty", _bedrock(), "", usage=(100, 20, 64)),
]


def _gemini(*parts: dict[str, Any], finish: str | None = "STOP", usage: bool = True) -> dict[str, Any]:
    counts = {
        "promptTokenCount": 100,
        "candidatesTokenCount": 12,
        "thoughtsTokenCount": 8,
        "totalTokenCount": 120,
        "cachedContentTokenCount": 64,
    }
    return {
        "candidates": [
            {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
        ],
        "modelVersion": "gemini-2.5-pro",
        "responseId": "r-1",
        **({"usageMetadata": counts} if usage else {}),
    }


_LOOK = {"functionCall": {"name": "look", "args": {"at": "sea"}}, "thoughtSignature": "c2ln"}
_LISTEN = {"functionCall": {"name": "listen", "args": {}}}

_GEMINI = [
    Reply(
        "gemini",
        "text",
        _gemini({"text": "There is fog."}),
        "There is fog.",
        usage=(100, 20, 64),
        chunks=(
            _gemini({"text": "There "}, finish=None, usage=False),
            _gemini({"text": "is fog."}),
        ),
    ),
    Reply(
        "gemini",
        "thoughts and parallel tools",
        _gemini({"text": "Hm. Well.", "thought": True}, {"text": "Let me look."}, _LOOK, _LISTEN),
        "Let me look.",
        calls=_CALLS,
        usage=(100, 20, 64),
        chunks=(
            _gemini({"text": "Hm. ", "thought": True}, finish=None, usage=False),
            _gemini({"text": "Well.", "thought": True}, finish=None, usage=False),
            _gemini({"text": "Let me look."}, finish=None, usage=False),
            _gemini(_LOOK, finish=None, usage=False),
            _gemini(_LISTEN),
        ),
    ),
    Reply("gemini", "empty", _gemini(), "", usage=(100, 20, 64)),
]

REPLIES = [*_CHAT, *_RESPONSES, *_ANTHROPIC, *_BEDROCK, *_GEMINI]
