"""Calls of OpenAI Responses that are not functions: custom tools, shells, patches, computers, approvals.

The caller runs them as it runs functions, so they are ordinary calls and results here: a name, arguments as
an object, any JSON as the result. ``ToolCallRequest.kind`` says which item a call is, so that it and its
result go back as the service's own items, whoever made the result and however it was shortened.

- ``custom``: the tool's name, ``input`` with the text; the result is text or parts.
- ``shell``: the action; text, or ``stdout``, ``stderr`` and ``outcome`` of each command.
- ``local_shell``: the action; text.
- ``apply_patch``: the operation; text, and an error is a patch that failed.
- ``computer``: ``action`` or ``actions``, and ``pending_safety_checks``; an image.
- ``mcp_approval``: ``server_label``, ``name`` and ``arguments``; true, or ``approve`` and ``reason``.

A result may also be an object with the fields of the output item, such as ``output`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import wire_text
from ..message import ToolCallRequest, ToolCallResult
from ..part import ImagePart
from . import draft, media
from .draft import Call, Result, result_of_blocks, text_or_none
from .rules.openai_responses import KINDS, id_of_call, id_of_output
from .scope import Scope

__all__ = ["read_call", "read_output", "write_call", "write_output"]

Item = dict[str, Any]
Output = Callable[[Any], Any]
"""Writes a result as the text or the parts of an output."""

BLANK_SCREEN = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4"
    "DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)
"""One white pixel. A computer's output must be a screenshot, also where there is none to show."""

_NAMED_BY_ITEM = ("function", "custom")
_SET_BY_US = ("type", "call_id", "id", "approval_request_id")


def read_call(kind: str, item: Item) -> Call:
    """Read a call of any kind; its kind is None if it is a function's."""
    id = text_or_none(item.get(id_of_call(kind)))
    if kind == "function":
        return draft.call(item.get("name"), item.get("arguments", ""), id)
    name = text_or_none(item.get("name")) or "" if kind in _NAMED_BY_ITEM else kind
    return Call(name, _arguments(kind, item), id, kind=kind)


def _arguments(kind: str, item: Item) -> dict[str, Any]:
    match kind, item:
        case "custom", _:
            return {"input": item.get("input")}
        case "shell" | "local_shell", {"action": dict(action)}:
            return action
        case "apply_patch", {"operation": dict(operation)}:
            return operation
        case "computer", _:
            checks = item.get("pending_safety_checks")
            acts = {key: item[key] for key in ("action", "actions") if item.get(key) is not None}
            return {**acts, **({"pending_safety_checks": checks} if checks else {})}
        case "mcp_approval", _:
            asked = draft.call(None, item.get("arguments"), None)
            arguments = asked.args if asked.raw is None else asked.raw
            return {
                "server_label": item.get("server_label"),
                "name": item.get("name"),
                "arguments": arguments,
            }
        case _:
            return {}


def write_call(call: ToolCallRequest, scope: Scope) -> Item:
    """Write a call as an item of its kind."""
    kind, args = call.kind or "function", call.args
    if kind not in KINDS:
        kind = "function"
    item: Item = {"type": KINDS[kind].call, id_of_call(kind): scope.wire_id(call.id)}
    if kind in _NAMED_BY_ITEM:
        item["name"] = scope.name(call.name)
    match kind:
        case "custom":
            given = args.get("input")
            item["input"] = given if isinstance(given, str) else wire_text.args_text(call)
        case "shell":
            item["action"] = args
        case "local_shell":
            item |= {"action": args, "status": "completed"}
        case "apply_patch":
            item |= {"operation": args, "status": "completed"}
        case "computer":
            item |= {"pending_safety_checks": [], **args, "status": "completed"}
        case "mcp_approval":
            arguments = args.get("arguments")
            given = arguments if isinstance(arguments, str) else wire_text.json_text(arguments)
            item |= {"server_label": args.get("server_label"), "name": args.get("name"), "arguments": given}
        case _:
            item["arguments"] = draft.written(call)
    return item


def read_output(kind: str, item: Item, read_part: Callable[[Item], Any]) -> Result:
    """Read an output of any kind."""
    id, output = text_or_none(item.get(id_of_output(kind, item))) or "", item.get("output", "")
    match kind:
        case "shell":
            return Result(id, output, any(map(_has_failed, output if isinstance(output, list) else ())))
        case "apply_patch":
            return Result(id, output or "", item.get("status") == "failed")
        case "computer":
            shot = _screenshot(output)
            return Result(id, wire_text.result_of_parts([shot]) if shot else output)
        case "mcp_approval":
            given = {key: item[key] for key in ("approve", "reason") if item.get(key) is not None}
            return Result(id, given)
        case _:
            return Result(id, result_of_blocks(output, read_part))


def write_output(result: ToolCallResult, call: ToolCallRequest | None, scope: Scope, written: Output) -> Item:
    """Write a result as the output item that its call needs; `call` is None unless it has a kind."""
    kind = call.kind if call and call.kind in KINDS else "function"
    item: Item = {"type": KINDS[kind].output, KINDS[kind].output_id: scope.wire_id(result.tool_call_id)}
    value, args = result.result, call.args if call else {}
    match kind:
        case "shell":
            longest = args.get("max_output_length")
            item |= _fields(value) or {"output": _chunks(result)}
            return {**item, "max_output_length": longest} if isinstance(longest, int) else item
        case "local_shell":
            return item | (_fields(value) or {"output": wire_text.result_text(value)})
        case "apply_patch":
            status = {"status": "failed" if result.is_error else "completed"}
            text = wire_text.result_text(value)
            return item | status | (_fields(value) or ({"output": text} if text else {}))
        case "computer":
            return item | (_fields(value) or _shown(value, args, scope))
        case "mcp_approval":
            return item | _decision(result)
        case _:
            return {**item, "output": written(value)}


def _fields(value: Any) -> Item | None:
    """Return a result that is given as the fields of its item."""
    if not isinstance(value, dict) or "output" not in value:
        return None
    return {key: item for key, item in value.items() if key not in _SET_BY_US}


def _chunks(result: ToolCallResult) -> list[Item]:
    """Write what a shell printed: chunks as they are, anything else as one that ended by itself."""
    value = result.result
    chunks = [value] if isinstance(value, dict) else value
    if isinstance(chunks, list) and chunks and all(map(_is_chunk, chunks)):
        return [
            {"stdout": "", "stderr": "", "outcome": _outcome(result.is_error), **chunk} for chunk in chunks
        ]
    text = wire_text.result_text(value)
    shown = {"stdout": "", "stderr": text} if result.is_error else {"stdout": text, "stderr": ""}
    return [{**shown, "outcome": _outcome(result.is_error)}]


def _is_chunk(value: Any) -> bool:
    return isinstance(value, dict) and ("stdout" in value or "stderr" in value)


def _outcome(is_error: bool) -> Item:
    return {"type": "exit", "exit_code": int(is_error)}


def _has_failed(chunk: Any) -> bool:
    outcome = chunk.get("outcome") if isinstance(chunk, dict) else None
    return isinstance(outcome, dict) and (outcome.get("type") == "timeout" or outcome.get("exit_code") != 0)


def _screenshot(output: Any) -> ImagePart | None:
    match output:
        case {"type": "computer_screenshot", "image_url": str(url)}:
            return media.image(url, None)
        case {"type": "computer_screenshot", "file_id": str(id)}:
            return ImagePart(file_id=id)
        case _:
            return None


def _shown(value: Any, args: Mapping[str, Any], scope: Scope) -> Item:
    """Write a screenshot; without one, a blank one, which answers the call's safety checks as well."""
    parts = wire_text.result_parts(value) or ()
    shot = next((part for part in parts if isinstance(part, ImagePart)), None)
    output: Item = {"type": "computer_screenshot"}
    if shot is not None:
        url = shot.url if shot.data is None else media.data_url(shot.data, shot.media_type)
        return {"output": {**output, **({"image_url": url} if url else {"file_id": shot.file_id})}}
    if isinstance(value, dict) and value.get("type") == "computer_screenshot":
        return {"output": value}
    scope.omit("text in place of a screenshot")
    checks = args.get("pending_safety_checks")
    acknowledged = {"acknowledged_safety_checks": checks} if checks else {}
    return {"output": {**output, "image_url": BLANK_SCREEN}, **acknowledged}


def _decision(result: ToolCallResult) -> Item:
    """Write an approval: only a plain yes is one, since anything else may be a failure or an accident."""
    value = result.result
    if isinstance(value, dict) and isinstance(value.get("approve"), bool) and not result.is_error:
        reason = value.get("reason")
        return {"approve": value["approve"], **({"reason": reason} if isinstance(reason, str) else {})}
    if isinstance(value, bool) and not result.is_error:
        return {"approve": value}
    return {"approve": False, "reason": wire_text.result_text(value)}
