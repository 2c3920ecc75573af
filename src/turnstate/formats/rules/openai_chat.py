"""The rules of OpenAI Chat Completions."""

from __future__ import annotations

from typing import Any

from ..port import Violation
from .fields import Fields, by_type
from .report import Report, shown

LONGEST_ID = 40

_PART = by_type(
    {
        "text": Fields("type! text! prompt_cache_breakpoint?"),
        "refusal": Fields("type! refusal!"),
        "image_url": Fields("type! image_url! prompt_cache_breakpoint?"),
        "input_audio": Fields("type! input_audio! prompt_cache_breakpoint?"),
        "file": Fields("type! file! prompt_cache_breakpoint?"),
    }
)
_FUNCTION = Fields("name! arguments!", response="parsed_arguments")
_CALL = by_type(
    {
        "function": Fields("id! type! function!", response="index", inner={"function": _FUNCTION}),
        "custom": Fields("id! type! custom!", response="index"),
    },
    default="function",
)
_SPOKEN = Fields("role! content! name", inner={"content": _PART})
_ASSISTANT = Fields(
    "role! content? name tool_calls refusal audio function_call",
    response="annotations parsed",
    inner={
        "content": _PART,
        "tool_calls": _CALL,
        "audio": Fields("id!", response="data expires_at transcript"),
    },
)
_MESSAGE = by_type(
    {
        "system": _SPOKEN,
        "developer": _SPOKEN,
        "user": _SPOKEN,
        "assistant": _ASSISTANT,
        "tool": Fields("role! content! tool_call_id!", inner={"content": _PART}),
    },
    "role",
)
DOCUMENT = Fields(
    "messages! model? tools? tool_choice? parallel_tool_calls? functions? function_call? temperature? top_p? "
    "n? stream? stream_options? stop? max_tokens? max_completion_tokens? presence_penalty? "
    "frequency_penalty? logit_bias? logprobs? top_logprobs? user? response_format? seed? service_tier? "
    "store? metadata? modalities? audio? prediction? reasoning_effort? verbosity? web_search_options? "
    "moderation? prompt_cache_key? prompt_cache_options? prompt_cache_retention? safety_identifier?",
    response="choices created object usage system_fingerprint",
    inner={"messages": _MESSAGE},
)
"""The request and response types of openai 3.49, Chat Completions."""

_ROLES = ("system", "developer", "user", "assistant", "tool")


def violations(payload: Any) -> list[Violation]:
    """List what Chat Completions would reject."""
    report = Report()
    batch = _OpenCalls(report)
    for message in report.items(
        payload.get("messages") if isinstance(payload, dict) else payload, "messages"
    ):
        role = message.get("role")
        if role not in _ROLES:
            report.add("role", f"unknown role {shown(role)}")
        if role == "tool":
            batch.answer(message)
        else:
            batch.close()
        _check_content(message, role, report)
        if role == "assistant" and message.get("tool_calls") is not None:
            batch.open(message["tool_calls"])
    batch.close()
    return report.violations


class _OpenCalls:
    """The calls of the nearest assistant message, until all are answered."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._index = 0
        self._open: dict[str, bool] = {}

    def open(self, calls: Any) -> None:
        self._index = self._report.index
        if not isinstance(calls, list) or not calls:
            self._report.add("tool-calls-empty", "tool_calls must be a non-empty list, or absent")
            return
        for call in calls:
            self._ask(call)

    def _ask(self, call: Any) -> None:
        report = self._report
        call = call if isinstance(call, dict) else {}
        id = call.get("id")
        if not isinstance(id, str) or not id:
            report.add("call-id", "a call must have an id", id)
        elif len(id) > LONGEST_ID:
            report.add("call-id", f"the call id must have at most {LONGEST_ID} characters, not {len(id)}", id)
        elif id in self._open:
            report.add("call-id", f"the id {id} occurs twice in one batch", id)
        if isinstance(id, str) and id:
            self._open[id] = True
        _check_function(call, report)

    def answer(self, message: dict[str, Any]) -> None:
        id = message.get("tool_call_id")
        if not isinstance(id, str) or id not in self._open:
            self._report.add("result-orphan", f"no call {shown(id)} in the nearest batch before", id)
        elif self._open[id]:
            self._open[id] = False
        else:
            self._report.add("result-twice", f"the call {id:.80} is answered twice", id)

    def close(self) -> None:
        self._report.unanswered((id for id, is_open in self._open.items() if is_open), self._index)
        self._open = {}


def _check_function(call: dict[str, Any], report: Report) -> None:
    id = call.get("id")
    if call.get("type") == "custom":
        custom = call.get("custom")
        report.name(custom.get("name") if isinstance(custom, dict) else None, id=id)
        if isinstance(custom, dict) and not isinstance(custom.get("input"), str):
            report.add("arguments", "the input of a custom tool must be a string", id)
        return
    function = call.get("function")
    if not isinstance(function, dict):
        report.add("shape", "a call must have a function", id)
        return
    report.name(function.get("name"), id=id)
    if not isinstance(function.get("arguments"), str):
        report.add("arguments", "arguments must be a string of JSON", id)


def _check_content(message: dict[str, Any], role: Any, report: Report) -> None:
    content, id = message.get("content"), message.get("tool_call_id")
    if content is None:
        spoken = any(message.get(key) for key in ("tool_calls", "refusal", "audio", "function_call"))
        if role == "assistant" and spoken:
            return
        report.add("content-null", f"the content of a message of role {shown(role)} may not be null", id)
    elif isinstance(content, list):
        if not content or not all(isinstance(part, dict) and part.get("type") for part in content):
            report.add("content", "content must be text or a non-empty list of typed parts", id)
    elif not isinstance(content, str):
        report.add("content", f"content must be text or parts, not {type(content).__name__}", id)
