"""The rules of OpenAI Responses."""

from __future__ import annotations

from typing import Any

from ..port import Violation
from .fields import Fields, by_type
from .report import NAME_64, Report, shown

__all__ = ["DOCUMENT", "LONGEST_ID", "violations"]

LONGEST_ID = 64

_PART = by_type(
    {
        "output_text": Fields("type! text! annotations logprobs", response="parsed"),
        "refusal": Fields("type! refusal!"),
        "input_text": Fields("type! text! prompt_cache_breakpoint?"),
        "input_image": Fields("type! detail? file_id? image_url? prompt_cache_breakpoint?"),
        "input_file": Fields(
            "type! detail? file_data? file_id? file_url? filename? prompt_cache_breakpoint?"
        ),
    }
)
_HOSTED = "created_by"  # only responses say who made an item of a hosted tool
_ITEM = by_type(
    {
        "message": Fields("type role! content! id status phase", inner={"content": _PART}),
        "function_call": Fields(
            "type! call_id! name! arguments! id status namespace caller async",
            response=f"async_ parsed_arguments {_HOSTED}",
        ),
        "function_call_output": Fields(
            "type! call_id! output! id? status? caller? name? namespace?",
            response=_HOSTED,
            inner={"output": _PART},
        ),
        "reasoning": Fields("type! id summary! content encrypted_content status"),
        "custom_tool_call": Fields(
            "type! call_id! name! input! id namespace caller async", response=f"async_ {_HOSTED}"
        ),
        "custom_tool_call_output": Fields(
            "type! call_id! output! id caller?", response=f"status {_HOSTED}", inner={"output": _PART}
        ),
        "computer_call": Fields("action actions", response=_HOSTED, open=True),
        "image_generation_call": Fields("error svg_usage", open=True),
        "mcp_call": Fields("status", open=True),
        "web_search_call": Fields(
            "type! id! action! status!", inner={"action": Fields("queries query sources", open=True)}
        ),
        **dict.fromkeys(
            (
                "computer_call_output tool_search_call tool_search_output compaction shell_call "
                "shell_call_output apply_patch_call apply_patch_call_output"
            ).split(),
            Fields("", response=_HOSTED, open=True),
        ),
    },
    default="message",
)
DOCUMENT = Fields(
    "input! instructions? model? tools? tool_choice? parallel_tool_calls? temperature? top_p? stream? "
    "stream_options? max_output_tokens? max_tool_calls? previous_response_id? conversation? include? "
    "reasoning? text? truncation? store? metadata? user? service_tier? background? prompt? image? "
    "prompt_cache_key? prompt_cache_options? prompt_cache_retention? safety_identifier? top_logprobs? "
    "access_programs? context_management? moderation?",
    response=(
        "output output_text object created_at completed_at error incomplete_details status usage tool_usage "
        "prompt_cache_diagnostics"
    ),
    inner={"input": _ITEM},
)
"""The request and response types of openai 3.49, Responses."""

_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
_CONTINUING = ("previous_response_id", "conversation")
"""With one of these fields, the service has the earlier items, which may include calls."""

_ROLES = ("system", "developer", "user", "assistant")


def violations(payload: Any) -> list[Violation]:
    """List what the Responses API would reject."""
    listed = payload.get("input") if isinstance(payload, dict) else payload
    if isinstance(payload, dict) and isinstance(listed, str) and listed:
        return []
    report = Report()
    continued = isinstance(payload, dict) and any(payload.get(key) is not None for key in _CONTINUING)
    calls: dict[str, int] = {}
    answered: set[str] = set()
    reasoning: int | None = None
    for item in report.items(listed, "input"):
        kind = item.get("type", "message")
        _check_id(item, kind, report)
        if reasoning is not None and not _produced(item, kind):
            report.add(
                "reasoning-alone",
                "a reasoning item must come before the item that it produced",
                index=reasoning,
            )
        reasoning = None
        match kind:
            case "message":
                _check_message(item, report)
            case "function_call":
                _check_call(item, calls, report)
            case "function_call_output":
                _check_output(item, None if continued else calls, answered, report)
            case "reasoning":
                reasoning = report.index
            case _ if not isinstance(kind, str):
                report.add("shape", f"an item's type must be text, not {type(kind).__name__}")
    if reasoning is not None:
        report.add(
            "reasoning-alone", "a reasoning item must come before the item that it produced", index=reasoning
        )
    for id, index in calls.items():
        if id not in answered:
            report.unanswered([id], index)
    return report.violations


def _produced(item: dict[str, Any], kind: Any) -> bool:
    """Return True if a model can have produced the item."""
    if kind == "message":
        return item.get("role") == "assistant"
    return isinstance(kind, str) and not kind.endswith("_output")


def _check_id(item: dict[str, Any], kind: Any, report: Report) -> None:
    prefix = _PREFIXES.get(kind) if isinstance(kind, str) else None
    id = item.get("id")
    if prefix and id is not None and not (isinstance(id, str) and id.startswith(prefix)):
        report.add("item-id", f"the id {shown(id)} of a {kind} item does not begin with {prefix}", id)


def _check_message(item: dict[str, Any], report: Report) -> None:
    if item.get("role") not in _ROLES:
        report.add("role", f"unknown role {shown(item.get('role'))}")
    content = item.get("content")
    if isinstance(content, list):
        if not content or not all(isinstance(part, dict) and part.get("type") for part in content):
            report.add("content", "content must be text or a non-empty list of typed parts")
    elif not isinstance(content, str):
        report.add("content", f"content must be text or parts, not {type(content).__name__}")


def _check_call(item: dict[str, Any], calls: dict[str, int], report: Report) -> None:
    id = item.get("call_id")
    if not isinstance(id, str) or not 0 < len(id) <= LONGEST_ID:
        report.add("call-id", f"a call_id must have 1 to {LONGEST_ID} characters", id)
    elif id in calls:
        report.add("call-id", f"the call_id {id:.80} is not unique", id)
    if isinstance(id, str) and id:
        calls.setdefault(id, report.index)
    report.name(item.get("name"), NAME_64, id)
    if not isinstance(item.get("arguments"), str):
        report.add("arguments", "arguments must be a string of JSON", id)


def _check_output(
    item: dict[str, Any], calls: dict[str, int] | None, answered: set[str], report: Report
) -> None:
    """Check an answer; `calls` is None if the service keeps the calls itself."""
    id = item.get("call_id")
    if not isinstance(id, str) or (calls is not None and id not in calls):
        report.add("result-orphan", f"no earlier call {shown(id)}", id)
    elif id in answered:
        report.add("result-twice", f"the call {id:.80} is answered twice", id)
    else:
        answered.add(id)
    if not isinstance(item.get("output"), str | list):
        report.add("output", "output must be text or a list of parts", id)
