"""Calls of OpenAI Responses that are not functions: custom tools, shells, patches, computers, approvals.

The caller runs them as it runs functions, so they are ordinary calls and results here: a name, arguments as
an object, any JSON as the result. ``ToolCallRequest.kind`` says which item a call is, so that it and its
result go back as the service's own items, whoever made the result and however it was shortened.

- ``custom``: the tool's name, ``input`` with the text; the result is text or parts.
- ``shell``: the action; text, or ``stdout``, ``stderr`` and ``outcome`` of each command.
- ``local_shell``: the action; text.
- ``apply_patch``: the operation; text, and an error is a patch that failed.
- ``computer``: ``action`` or ``actions``, and ``pending_safety_checks``; an image. Only the result itself
  acknowledges checks: a call that was refused or abandoned with open checks is told in words (`in_words`).
- ``mcp_approval``: ``server_label``, ``name`` and ``arguments``; true, or ``approve`` and ``reason``.

A result may also be an object with the fields of the output item, such as ``output`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import wire_text
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..part import ImagePart, ReasoningPart, TextPart
from . import draft, media
from .draft import Call, Result, result_of_blocks, text_or_none
from .rules.openai_responses import KINDS, id_of_call, id_of_output
from .scope import Scope

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
_STATUSES = ("in_progress", "completed", "incomplete", "failed")


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
            item |= {key: value for key, value in args.items() if key in ("action", "actions")}
            item |= {"pending_safety_checks": args.get("pending_safety_checks", []), "status": "completed"}
        case "mcp_approval":
            asked = {key: args.get(key) for key in ("server_label", "name", "arguments")}
            item |= {
                key: value if isinstance(value, str) else wire_text.json_text(value)
                for key, value in asked.items()
            }
        case _:
            item["arguments"] = draft.written(call)
    return item


def read_output(kind: str, item: Item, read_part: Callable[[Item], Any]) -> Result:
    """Read an output of any kind."""
    id, output, is_error = (
        text_or_none(item.get(id_of_output(kind, item))) or "",
        item.get("output", ""),
        False,
    )
    match kind:
        case "shell":
            is_error = any(map(_has_failed, output if isinstance(output, list) else ()))
        case "apply_patch":
            output, is_error = output or "", item.get("status") == "failed"
        case "computer":
            shot = _screenshot(output)
            output = wire_text.result_of_parts([shot]) if shot else output
        case "mcp_approval":
            output = {key: item[key] for key in ("approve", "reason") if item.get(key) is not None}
        case _:
            output = result_of_blocks(output, read_part)
    return Result(id, output, is_error, kind=None if kind == "function" else kind)


def write_output(result: ToolCallResult, scope: Scope, written: Output) -> Item:
    """Write a result as the output item of its call's kind; of its own if the call is elsewhere."""
    id = result.tool_call_id
    call = scope.natives.get(id)
    named = call.kind if call else result.kind if id not in scope.names else None
    kind = named if isinstance(named, str) and named in KINDS else "function"
    item: Item = {"type": KINDS[kind].output, KINDS[kind].output_id: scope.wire_id(id)}
    value, args = result.result, call.args if call else {}
    match kind:
        case "shell":
            longest = args.get("max_output_length")
            item |= {"max_output_length": longest} if isinstance(longest, int) else {}
            return item | (_fields(value, _are_chunks) or {"output": _chunks(result)})
        case "local_shell":
            return item | (_fields(value, _is_text) or {"output": wire_text.result_text(value)})
        case "apply_patch":
            text = wire_text.result_text(value)
            said = _fields(value, _is_text) or ({"output": text} if text else {})
            failed = result.is_error or said.get("status") == "failed"
            return item | said | {"status": "failed" if failed else "completed"}
        case "computer":
            return item | (_fields(value, _is_screenshot) or _shown(value, scope))
        case "mcp_approval":
            return item | _decision(result)
        case _:
            return {**item, "output": written(value)}


def _fields(value: Any, is_output: Callable[[Any], bool]) -> Item | None:
    """Return a result that is given as the fields of its item."""
    if not isinstance(value, dict) or not is_output(value.get("output")):
        return None
    fields: Item = {"output": value["output"]}
    if value.get("status") in _STATUSES:
        fields["status"] = value["status"]
    if isinstance(longest := value.get("max_output_length"), int):
        fields["max_output_length"] = longest
    return fields | _acknowledged(value)


def _acknowledged(value: Any) -> Item:
    """Return the safety checks that a result acknowledges, as the field of its item."""
    checks = value.get("acknowledged_safety_checks") if isinstance(value, dict) else None
    if not isinstance(checks, list):
        return {}
    return {"acknowledged_safety_checks": [one for one in checks if isinstance(one, dict)]}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _chunks(result: ToolCallResult) -> list[Item]:
    """Write what a shell printed: chunks as they are, anything else as one that ended by itself."""
    value = result.result
    chunks = [value] if isinstance(value, dict) else value
    if _are_chunks(chunks):
        plain = {"stdout": "", "stderr": "", "outcome": _outcome(result.is_error)}
        return [plain | {key: chunk[key] for key in plain if key in chunk} for chunk in chunks]
    text = wire_text.result_text(value)
    shown = {"stdout": "", "stderr": text} if result.is_error else {"stdout": text, "stderr": ""}
    return [{**shown, "outcome": _outcome(result.is_error)}]


def _are_chunks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_chunk, value))


def _is_chunk(value: Any) -> bool:
    if not isinstance(value, dict) or not ("stdout" in value or "stderr" in value):
        return False
    texts = (value.get("stdout", ""), value.get("stderr", ""))
    return all(map(_is_text, texts)) and isinstance(value.get("outcome", {}), dict)


def _outcome(is_error: bool) -> Item:
    return {"type": "exit", "exit_code": int(is_error)}


def _has_failed(chunk: Any) -> bool:
    outcome = chunk.get("outcome") if isinstance(chunk, dict) else None
    return isinstance(outcome, dict) and (outcome.get("type") == "timeout" or outcome.get("exit_code") != 0)


def _is_screenshot(output: Any) -> bool:
    return _screenshot(output) is not None


def _screenshot(output: Any) -> ImagePart | None:
    match output:
        case {"type": "computer_screenshot", "image_url": str(url)}:
            return media.image(url, None)
        case {"type": "computer_screenshot", "file_id": str(id)}:
            return ImagePart(file_id=id)
        case _:
            return None


def _image(value: Any) -> ImagePart | None:
    """Return the screenshot among the parts of a result."""
    parts = wire_text.result_parts(value) or ()
    return next((part for part in parts if isinstance(part, ImagePart)), None)


def _shown(value: Any, scope: Scope) -> Item:
    """Write a screenshot, or a blank one if there is none; no check is acknowledged that is not named."""
    output: Item = {"type": "computer_screenshot"}
    if shot := _image(value):
        url = shot.url if shot.data is None else media.data_url(shot.data, shot.media_type)
        return {"output": {**output, **({"image_url": url} if url else {"file_id": shot.file_id})}}
    if _is_screenshot(value):
        return {"output": value}
    scope.omit("text in place of a screenshot")
    return {"output": {**output, "image_url": BLANK_SCREEN}, **_acknowledged(value)}


def in_words(messages: Sequence[Message], format: str) -> Sequence[Message]:
    """Write computer calls as text whose safety checks nobody acknowledged, together with their results.

    The service goes on only if the checks are acknowledged, and that would say that a person agreed to what
    was refused or never asked for. A document of the service itself is not changed.
    """
    calls = {call.id: call for message in messages for call in message.tool_calls if call.kind == "computer"}
    told = {
        one.tool_call_id
        for message in messages
        if calls and message.tool_results and not _is_verbatim(message, format)
        for one in message.tool_results
        if one.tool_call_id in calls and _leaves_checks_open(calls[one.tool_call_id], one.result)
    }
    if not told:
        return messages
    return [one for message in messages for one in _told(message, told)]


def _is_verbatim(message: Message, format: str) -> bool:
    native = message.native
    return native is not None and native.format == format and bool(native.edits) and not native.mended


def _leaves_checks_open(call: ToolCallRequest, value: Any) -> bool:
    """Return True if a result shows no screenshot and does not acknowledge all checks of its call."""
    pending = call.args.get("pending_safety_checks")
    shown = value.get("output") if isinstance(value, dict) else None
    if not pending or _image(value) or _is_screenshot(value) or _is_screenshot(shown):
        return False
    named = _acknowledged(value).get("acknowledged_safety_checks", ())
    return not _ids(pending) <= _ids(named)


def _ids(checks: Any) -> set[str]:
    """Return the ids of safety checks; one without an id is never the same as another."""
    listed: Iterable[Any] = checks if isinstance(checks, list) else [checks]
    ids = (one.get("id") if isinstance(one, dict) else None for one in listed)
    return {id if isinstance(id, str) else f"{number} has no id" for number, id in enumerate(ids)}


def _told(message: Message, told: set[CallId]) -> list[Message]:
    """Return a message whose calls or results of these ids are text; all have its id."""
    if calls := [call for call in message.tool_calls if call.id in told]:
        # Reasoning must come before the very item that it produced, which is left out.
        said = [part for part in message.parts if not isinstance(part, ReasoningPart)]
        said += [TextPart(f"[Computer call: {wire_text.args_text(call)}]") for call in calls]
        texts = [part.text for part in said if isinstance(part, TextPart)]
        content = "\n".join(texts) if len(texts) == len(said) else tuple(said)
        rest = tuple(call for call in message.tool_calls if call.id not in told)
        return [message.replace(content=content, tool_calls=rest)]
    results = [one for one in message.tool_results if one.tool_call_id in told]
    if not results:
        return [message]
    kept = [(at, one) for at, one in enumerate(message.tool_results) if one.tool_call_id not in told]
    notes = (
        f"[The safety checks of the computer call are not acknowledged]\n{wire_text.result_text(one.result)}"
        for one in results
    )
    note = Message.user([TextPart(text) for text in notes], id=message.id, timestamp=message.timestamp)
    return [message.with_results(kept), note] if kept else [note]


def _decision(result: ToolCallResult) -> Item:
    """Write an approval: only a plain yes is one, since anything else may be a failure or an accident."""
    value = result.result
    if isinstance(value, dict) and isinstance(value.get("approve"), bool) and not result.is_error:
        reason = value.get("reason")
        return {"approve": value["approve"], **({"reason": reason} if isinstance(reason, str) else {})}
    if isinstance(value, bool) and not result.is_error:
        return {"approve": value}
    return {"approve": False, "reason": wire_text.result_text(value)}
