"""Calls of OpenAI Responses that the service runs itself: one item holds the call and its result.

The log keeps such an item as it was received, and the caller never sees it as a call to run. A window takes
it apart, so that the result can be cut, reduced and hidden like any other, and `folded` puts both halves
together again: the call's half keeps all fields that are not the result's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import wire_text
from ..message import ToolCallRequest, ToolCallResult
from . import draft
from .draft import Call, Result
from .pairing import wire_name

Item = dict[str, Any]


class Hosted(NamedTuple):
    """An item that holds a call and its result: where they are, and a required field that is neither.

    Without a `name`, the item itself has a name and arguments as JSON.
    """

    result: str
    required: str
    name: str | None = None
    args: str = "arguments"


HOSTED = {
    "mcp_call": Hosted("output", "server_label"),
    "code_interpreter_call": Hosted("outputs", "container_id", "code_interpreter", "code"),
    "file_search_call": Hosted("results", "status", "file_search", "queries"),
}

_ERROR = "error"
_RESULT = "_result"  # ends the type of a result's half, which is never sent


class Halves(NamedTuple):
    """The call and the result of an item, as read and as the two items that make up the item."""

    call: Call
    asked: Item
    result: Result
    given: Item


def holds_result(item: Item) -> bool:
    """Return True if an item holds a call with its result."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in HOSTED or not isinstance(item.get("id"), str):
        return False
    return any(item.get(field) is not None for field in (HOSTED[kind].result, _ERROR))


def half_kind(item: Item) -> str | None:
    """Return the kind of call that an item is a half of; None if it is none."""
    kind = str(item.get("type")).removesuffix(_RESULT)
    return kind if kind in HOSTED else None


def halves(item: Item) -> Halves | None:
    """Take an item apart; return None if it holds no result."""
    if not holds_result(item):
        return None
    kind, id = item["type"], item["id"]
    hosted = HOSTED[kind]
    fields = (hosted.result, _ERROR)
    call = draft.call(hosted.name or item.get("name"), item.get(hosted.args), id)
    if hosted.name:
        call = Call(hosted.name, {hosted.args: item.get(hosted.args)}, id)
    failed = item.get(_ERROR) is not None or item.get("status") == "failed"
    value = item[hosted.result] if item.get(hosted.result) is not None else item[_ERROR]
    return Halves(
        call._replace(kind=kind),
        {key: value for key, value in item.items() if key not in fields},
        Result(id, value, failed, kind=kind),
        {"type": kind + _RESULT, "id": id, **{key: item[key] for key in fields if key in item}},
    )


def write_call(call: ToolCallRequest, id: str) -> Item:
    """Write the half that is the call."""
    kind = call.kind or ""
    hosted = HOSTED[kind]
    if hosted.name:
        return {"type": kind, "id": id, hosted.args: call.args.get(hosted.args)}
    return {"type": kind, "id": id, "name": call.name, hosted.args: draft.written(call)}


def write_result(result: ToolCallResult, kind: str, id: str) -> Item:
    """Write the half that is the result."""
    item: Item = {"type": kind + _RESULT, "id": id}
    value, text = result.result, wire_text.result_text(result.result)
    match kind:
        case "mcp_call" if result.is_error:
            content = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
            return {**item, _ERROR: value if isinstance(value, dict) else content}
        case "mcp_call":
            return {**item, "output": text}
        case "code_interpreter_call":
            return {**item, "outputs": value if _are_objects(value) else [{"type": "logs", "logs": text}]}
        case _:
            return {**item, HOSTED[kind].result: value if _are_objects(value) else [{"text": text}]}


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def folded(items: Iterable[tuple[Any, bool]]) -> list[Any]:
    """Put each result's half into the call's half before it; each item comes with whether it is an answer."""
    places: list[list[Any]] = []
    waiting: dict[str, deque[int]] = {}
    for item, answers in items:
        kind = half_kind(item) if isinstance(item, dict) else None
        if kind and answers:
            calls = waiting.get(item["id"])
            if calls:
                at = calls.popleft()
                places[at] = _joined(places[at][0], item, kind)
            else:
                places.append([_plain_result(item, kind)])
            continue
        if kind and isinstance(item.get("id"), str) and not holds_result(item):
            waiting.setdefault(item["id"], deque()).append(len(places))
        places.append([item])
    return [item for place in places for item in place]


def _joined(asked: Item, given: Item, kind: str) -> list[Item]:
    """Return both halves as one item, or as a function's call if what makes it the service's own is gone."""
    hosted = HOSTED[kind]
    if hosted.required in asked:
        return [{**asked, **{key: value for key, value in given.items() if key != "type"}}]
    args = asked.get(hosted.args)
    call = {
        "type": "function_call",
        "call_id": given["id"],
        "name": wire_name(hosted.name or asked["name"]),
        "arguments": wire_text.json_text({hosted.args: args}) if hosted.name else args,
    }
    return [call, _plain_result(given, kind)]


def _plain_result(given: Item, kind: str) -> Item:
    value = given.get(HOSTED[kind].result)
    text = wire_text.result_text(given.get(_ERROR) if value is None else value)
    return {"type": "function_call_output", "call_id": given["id"], "output": text}
