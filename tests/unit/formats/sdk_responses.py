"""What providers answer, as their SDKs write it: `model_dump()` fills every field, most of them with null.

The shapes are those of openai 3.49, anthropic 2.8, google-genai 3.1 and botocore 1.44. ``items`` are what
a caller appends to its request, ``answers`` the results of the calls in them, and ``dropped`` names the
fields of the items that a request must not have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ANSWERED", "Answered"]


class Answered(NamedTuple):
    provider: str
    question: Any
    items: list[Any]
    answers: list[Any]
    dropped: frozenset[str]


_CHAT_MESSAGE = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": [
        {
            "id": "call_1",
            "function": {"arguments": '{"at":"sea"}', "name": "look", "parsed_arguments": None},
            "type": "function",
            "index": 0,
        }
    ],
    "parsed": None,
}
_CHAT_SPOKEN = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": None,
    "audio": {"id": "audio_1", "data": "UklGRg==", "expires_at": 1761368591, "transcript": "There is fog."},
    "function_call": None,
    "tool_calls": None,
}

_ANTHROPIC_MESSAGE = {
    "id": "msg_1",
    "container": None,
    "content": [
        {"signature": "c2ln", "thinking": "Hm.", "type": "thinking"},
        {"citations": None, "text": "Let me look.", "type": "text"},
        {
            "id": "toolu_1",
            "caller": None,
            "input": {"at": "sea"},
            "name": "look",
            "type": "tool_use",
            "toolset_name": None,
        },
    ],
    "diagnostics": None,
    "model": "claude-sonnet-4-5",
    "role": "assistant",
    "stop_details": None,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "type": "message",
    "usage": {"input_tokens": 7, "output_tokens": 9, "service_tier": None},
}

_RESPONSES_OUTPUT = [
    {
        "id": "rs_1",
        "summary": [],
        "type": "reasoning",
        "content": None,
        "encrypted_content": None,
        "status": None,
    },
    {
        "id": "msg_1",
        "content": [
            {
                "annotations": [],
                "text": "Let me look.",
                "type": "output_text",
                "logprobs": None,
                "parsed": None,
            }
        ],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": None,
    },
    {
        "arguments": '{"at":"sea"}',
        "call_id": "call_1",
        "name": "look",
        "type": "function_call",
        "id": "fc_1",
        "async_": None,
        "caller": None,
        "namespace": None,
        "status": "completed",
        "parsed_arguments": None,
    },
]

_OTHER_PARTS = dict.fromkeys(
    (
        "media_resolution code_execution_result executable_code file_data function_response inline_data "
        "video_metadata tool_call tool_response part_metadata audio_transcription"
    ).split()
)
_GEMINI_CONTENT = {
    "parts": [
        {**_OTHER_PARTS, "text": "Hm.", "thought": True, "thought_signature": None, "function_call": None},
        {
            **_OTHER_PARTS,
            "text": None,
            "thought": None,
            "thought_signature": "c2ln",
            "function_call": {
                "id": None,
                "args": {"at": "sea"},
                "name": "look",
                "partial_args": None,
                "will_continue": None,
            },
        },
    ],
    "role": "model",
    "finish_reason": "STOP",
    "index": 0,
}

_BEDROCK_MESSAGE = {
    "role": "assistant",
    "content": [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"text": "Let me look."},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"at": "sea"}}},
    ],
    "stopReason": "tool_use",
    "usage": {"inputTokens": 7, "outputTokens": 9, "totalTokens": 16},
    "metrics": {"latencyMs": 700},
}

ANSWERED = [
    Answered(
        "openai-chat",
        {"role": "user", "content": "Look."},
        [_CHAT_MESSAGE],
        [{"role": "tool", "tool_call_id": "call_1", "content": "fog"}],
        frozenset(
            (
                "refusal annotations audio function_call parsed tool_calls.index "
                "tool_calls.function.parsed_arguments"
            ).split()
        ),
    ),
    Answered(
        "openai-chat",
        {"role": "user", "content": "Look."},
        [_CHAT_SPOKEN],
        [],
        frozenset({"audio.data", "audio.expires_at", "audio.transcript", "refusal", "tool_calls"}),
    ),
    Answered(
        "openai-responses",
        {"role": "user", "content": "Look."},
        _RESPONSES_OUTPUT,
        [{"type": "function_call_output", "call_id": "call_1", "output": "fog"}],
        frozenset("content encrypted_content phase caller namespace async_ parsed_arguments".split()),
    ),
    Answered(
        "anthropic",
        {"role": "user", "content": "Look."},
        [_ANTHROPIC_MESSAGE],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "fog"}]}],
        frozenset(
            (
                "id container diagnostics model stop_details stop_reason stop_sequence type usage "
                "content.citations content.caller content.toolset_name"
            ).split()
        ),
    ),
    Answered(
        "bedrock",
        {"role": "user", "content": [{"text": "Look."}]},
        [_BEDROCK_MESSAGE],
        [
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "fog"}]}}],
            }
        ],
        frozenset({"stopReason", "usage", "metrics"}),
    ),
    Answered(
        "gemini",
        {"role": "user", "parts": [{"text": "Look."}]},
        [_GEMINI_CONTENT],
        [
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "look", "response": {"output": "fog"}}}],
            }
        ],
        frozenset(
            {
                "finish_reason",
                "index",
                "parts.text",
                "parts.thought",
                "parts.function_call",
                "parts.inline_data",
                "parts.function_call.id",
                "parts.function_call.partial_args",
            }
        ),
    ),
]
