"""The rules of OpenAI Responses."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..port import Violation
from .fields import Fields, by_type
from .report import NAME_64, Report, shown

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
CONTINUING = frozenset({"previous_response_id", "conversation"})
"""With one of these fields, the service has the earlier items, which may include calls."""

_ROLES = ("system", "developer", "user", "assistant")


class Kind(NamedTuple):
    """A kind of call that the caller runs: its item, its output's item, and where they hold the call's id."""

    call: str
    output: str
    call_id: str = "call_id"
    output_id: str = "call_id"


KINDS = {
    "function": Kind("function_call", "function_call_output"),
    "custom": Kind("custom_tool_call", "custom_tool_call_output"),
    "shell": Kind("shell_call", "shell_call_output"),
    "local_shell": Kind("local_shell_call", "local_shell_call_output", output_id="id"),
    "apply_patch": Kind("apply_patch_call", "apply_patch_call_output"),
    "computer": Kind("computer_call", "computer_call_output"),
    "mcp_approval": Kind(
        "mcp_approval_request", "mcp_approval_response", call_id="id", output_id="approval_request_id"
    ),
}
_BY_CALL = {kind.call: name for name, kind in KINDS.items()}
_BY_OUTPUT = {kind.output: name for name, kind in KINDS.items()}


def type_of(item: dict[str, Any]) -> Any:
    """Return the type of an item; a message may come without one, and so may a reference to an item."""
    kind = item.get("type")
    if kind is None and "id" in item and "role" not in item and "content" not in item:
        return "item_reference"
    return item.get("type", "message")


def call_kind(item: dict[str, Any]) -> str | None:
    """Return the kind of call that an item makes; None if it makes none that the caller runs."""
    kind = item.get("type")
    return _BY_CALL.get(kind) if isinstance(kind, str) else None


def output_kind(item: dict[str, Any]) -> str | None:
    """Return the kind of call that an item answers; None if it answers none."""
    kind = item.get("type")
    return _BY_OUTPUT.get(kind) if isinstance(kind, str) else None


def may_be_call(item: dict[str, Any]) -> bool:
    """Return True if an item refers to another one that the service has and that may be a call."""
    known = tuple(prefix for kind, prefix in _PREFIXES.items() if kind not in _BY_CALL)
    return type_of(item) == "item_reference" and not str(item.get("id")).startswith(known)


def id_of_call(kind: str) -> str:
    """Return the field of a call that holds its id."""
    return KINDS[kind].call_id


def id_of_output(kind: str, item: dict[str, Any]) -> str:
    """Return the field of an output that holds the id of its call; a local shell's may be either."""
    return "call_id" if "call_id" in item else KINDS[kind].output_id


def violations(payload: Any) -> list[Violation]:
    """List what the Responses API would reject."""
    listed = payload.get("input") if isinstance(payload, dict) else payload
    if isinstance(payload, dict) and isinstance(listed, str) and listed:
        return []
    report = Report()
    items = list(report.items(listed, "input"))
    continued = isinstance(payload, dict) and any(payload.get(key) is not None for key in CONTINUING)
    continued = continued or any(type_of(item) == "item_reference" for item in items)
    calls: dict[str, tuple[int, str]] = {}
    answered: set[str] = set()
    reasoning: int | None = None
    for report.index, item in _numbered(listed):
        kind = type_of(item)
        _check_id(item, kind, report)
        if reasoning is not None and not _produced(item, kind):
            report.add(
                "reasoning-alone",
                "a reasoning item must come before the item that it produced",
                index=reasoning,
            )
        reasoning = None
        if called := call_kind(item):
            _check_call(item, called, calls, report)
        elif answers := output_kind(item):
            _check_answer(item, answers, calls, answered, report, continued=continued)
            _check_output(item, answers, report)
        elif kind == "message":
            _check_message(item, report)
        elif kind == "reasoning":
            reasoning = report.index
        elif not isinstance(kind, str):
            report.add("shape", f"an item's type must be text, not {type(kind).__name__}")
    if reasoning is not None:
        report.add(
            "reasoning-alone", "a reasoning item must come before the item that it produced", index=reasoning
        )
    for id, (index, _) in calls.items():
        if id not in answered:
            report.unanswered([id], index)
    return report.violations


def _numbered(listed: Any) -> list[tuple[int, dict[str, Any]]]:
    items = enumerate(listed if isinstance(listed, list) else ())
    return [(index, item) for index, item in items if isinstance(item, dict)]


def _produced(item: dict[str, Any], kind: Any) -> bool:
    """Return True if a model can have produced the item."""
    if kind == "message":
        return item.get("role") == "assistant"
    return isinstance(kind, str) and not kind.endswith("_output") and kind not in _BY_OUTPUT


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


def _check_call(item: dict[str, Any], kind: str, calls: dict[str, tuple[int, str]], report: Report) -> None:
    key = id_of_call(kind)
    id = item.get(key)
    if not isinstance(id, str) or not 0 < len(id) <= LONGEST_ID:
        report.add("call-id", f"the {key} of a call must have 1 to {LONGEST_ID} characters", id)
    elif id in calls:
        report.add("call-id", f"the {key} {id:.80} is not unique", id)
    if isinstance(id, str) and id:
        calls.setdefault(id, (report.index, kind))
    match kind:
        case "function":
            report.name(item.get("name"), NAME_64, id)
            if not isinstance(item.get("arguments"), str):
                report.add("arguments", "arguments must be a string of JSON", id)
        case "custom":
            report.name(item.get("name"), NAME_64, id)
            if not isinstance(item.get("input"), str):
                report.add("arguments", "the input of a custom tool must be a string", id)
        case "shell" | "local_shell" | "apply_patch":
            key = "operation" if kind == "apply_patch" else "action"
            if not isinstance(item.get(key), dict):
                report.add("arguments", f"{key} must be an object", id)
        case "mcp_approval":
            if not all(isinstance(item.get(key), str) for key in ("server_label", "name", "arguments")):
                report.add("arguments", "server_label, name and arguments must be strings", id)


def _check_answer(
    item: dict[str, Any],
    kind: str,
    calls: dict[str, tuple[int, str]],
    answered: set[str],
    report: Report,
    *,
    continued: bool,
) -> None:
    """Check which call an output answers; if `continued`, the service may keep the call itself."""
    id = item.get(id_of_output(kind, item))
    if not isinstance(id, str) or (id not in calls and not continued):
        report.add("result-orphan", f"no earlier call {shown(id)}", id)
    elif id in answered:
        report.add("result-twice", f"the call {id:.80} is answered twice", id)
    else:
        answered.add(id)
        if id in calls and calls[id][1] != kind:
            made, wanted = KINDS[calls[id][1]], KINDS[kind]
            report.add(
                "result-kind", f"a {made.call} is answered by a {made.output}, not {wanted.output}", id
            )


def _check_output(item: dict[str, Any], kind: str, report: Report) -> None:
    id, output = item.get(id_of_output(kind, item)), item.get("output")
    match kind:
        case "function" | "custom" if not isinstance(output, str | list):
            report.add("output", "output must be text or a list of parts", id)
        case "local_shell" if not isinstance(output, str):
            report.add("output", "output must be text", id)
        case "shell" if not isinstance(output, list) or not all(isinstance(one, dict) for one in output):
            report.add("output", "output must be a list of objects", id)
        case "apply_patch" if item.get("status") not in ("completed", "failed"):
            report.add("output", "status must be completed or failed", id)
        case "computer" if not isinstance(output, dict):
            report.add("output", "output must be a screenshot", id)
        case "mcp_approval" if not isinstance(item.get("approve"), bool):
            report.add("output", "approve must be true or false", id)
