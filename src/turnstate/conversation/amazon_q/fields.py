"""Fields of an Amazon Q document other than messages: tools, sticky files, model, trackers, requests.

The user's own tools are custom here and native there. A conversation that comes from Amazon Q keeps the
original of every field that we would write differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...catalog import ModelInfo
from ...entry import Usage
from ...message import Message
from .. import kept_settings as settings
from ..kept_settings import tools_to_json
from ..line_tracker import FileLineTracker
from ..state import ConversationState
from ..tools import CUSTOM, NATIVE

KEPT = "original"
"""The key under which a state keeps what it has no field for."""

_TRACKED = (
    "prev_fswrite_lines",
    "before_fswrite_lines",
    "after_fswrite_lines",
    "lines_added_by_agent",
    "lines_removed_by_agent",
    "is_first_write",
)


def restore(state: ConversationState, document: dict[str, Any]) -> None:
    """Set the fields that a document and a state have in common."""
    trackers = document.get("file_line_tracker", {})
    known = {
        "tools": document["tools"],
        "context_manager": document.get("context_manager"),
        "model": document.get("model"),
        "model_info": document.get("model_info"),
        "file_line_tracker": {path: {name: one[name] for name in _TRACKED} for path, one in trackers.items()},
        "mcp_enabled": document.get("mcp_enabled", True),
    }
    settings.restore(state, known)


def written(state: ConversationState) -> dict[str, Any]:
    """Return the fields of a document; Amazon Q leaves some out if they are null."""
    context, length = state.context_manager, state.context_message_length
    fields = {
        "tools": _tools(state),
        "context_manager": context.state.original() if context else None,
        "context_message_length": length,
        "model": state.model,
        "model_info": _model(state.model_info) if state.model_info else None,
        "file_line_tracker": {path: _tracker(one) for path, one in state.file_line_tracker.items()},
        "mcp_enabled": state.mcp_enabled,
    }
    return {
        name: value
        for name, value in fields.items()
        if value is not None or name not in ("model", "model_info")
    }


def _tracker(tracker: FileLineTracker) -> dict[str, Any]:
    return {name: getattr(tracker, name) for name in _TRACKED}


def _tools(state: ConversationState) -> dict[str, Any]:
    found = tools_to_json(state.tools)
    own = found.pop(CUSTOM, [])
    return {**found, NATIVE: found.get(NATIVE, []) + own} if own else found


def _model(info: ModelInfo) -> dict[str, Any]:
    return {
        "model_name": info.name,
        "model_id": info.id,
        "context_window_tokens": info.context_window,
    }


# Fields that we would write differently are kept verbatim next to our values.


_ABSENT = object()
_encode = msgspec.json.Encoder(order="deterministic").encode


def digest(value: Any) -> str:
    """Return a digest that is equal for equal JSON values; a missing value has its own."""
    if value is _ABSENT:
        return ""
    return hashlib.blake2b(_encode(value), digest_size=16).hexdigest()


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ between ours and theirs, or that only one of them has."""
    found = dict[str, Any]()
    for name in dict.fromkeys([*theirs, *ours]):
        own, other = ours.get(name, _ABSENT), theirs.get(name, _ABSENT)
        if digest(own) != digest(other):
            found[name] = {"for": digest(own)} | ({} if other is _ABSENT else {"is": other})
    return found


def put_back(ours: Mapping[str, Any], kept: Any) -> dict[str, Any]:
    """Return our fields; those that are unchanged are replaced with the originals that were kept."""
    result = dict(ours)
    for name, one in kept.items() if isinstance(kept, dict) else ():
        if not isinstance(one, dict) or one.get("for") != digest(ours.get(name, _ABSENT)):
            continue
        if "is" in one:
            result[name] = one["is"]
        else:
            result.pop(name, None)
    return result


# The metadata of a request (ids, times and sizes) as a usage entry, and back.


COMPACT = "Compact"

_BLANK: dict[str, Any] = {
    "request_id": None,
    "message_id": "",
    "request_start_timestamp_ms": 0,
    "stream_end_timestamp_ms": 0,
    "time_to_first_chunk": None,
    "time_between_chunks": [],
    "user_prompt_length": 0,
    "response_size": 0,
    "chat_conversation_type": None,
    "tool_use_ids_and_names": [],
    "model_id": None,
    "message_meta_tags": [],
}
_NULLABLE = {name for name, value in _BLANK.items() if value is None}
_REQUIRED = _BLANK.keys() - _NULLABLE


def read(document: dict[str, Any]) -> Usage:
    """Read the metadata of a request."""
    return Usage(model=document.get("model_id") or "", details=document)


def of_answer(usage: Usage, prompt_bytes: int, answer: Message, written: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of an answered request; `written` is the answer in the form of the document."""
    if usage.details.keys() >= _REQUIRED:
        return dict(usage.details)
    moment = int(datetime.fromisoformat(answer.timestamp).timestamp() * 1000)
    calls = written.get("tool_uses", [])
    return {
        **_BLANK,
        "message_id": written["message_id"] or str(answer.id),
        "request_start_timestamp_ms": max(0, moment),
        "stream_end_timestamp_ms": max(0, moment),
        "user_prompt_length": prompt_bytes,
        "response_size": len(written["content"].encode()),
        "chat_conversation_type": "ToolUse" if calls else "NotToolUse",
        "tool_use_ids_and_names": [[call["id"], call["name"]] for call in calls],
        "model_id": usage.model or None,
    }


def of_summary(text: str, id: str, model: str) -> dict[str, Any]:
    """Return the metadata of a summary that Amazon Q did not make."""
    known = {"message_id": id, "response_size": len(text.encode()), "model_id": model or None}
    return {**_BLANK, **known, "message_meta_tags": [COMPACT]}


# The checkpoints of a document: foreign data, kept without its copies of the history.


COPY = "history_snapshot"

_snapshots_encode = msgspec.json.Encoder(order="deterministic").encode


def folded(manager: dict[str, Any], history: Sequence[Any]) -> dict[str, Any]:
    """Return the checkpoints with references to the history instead of copies of it."""
    known = [_snapshots_encode(entry) for entry in history]

    def fold(copy: Any) -> Any:
        shared = 0
        if not isinstance(copy, list):
            return {"first": shared, "then": copy}
        while shared < min(len(copy), len(known)) and _snapshots_encode(copy[shared]) == known[shared]:
            shared += 1
        return {"first": shared, "then": copy[shared:]}

    return _with_copies(manager, fold)


def unfolded(manager: dict[str, Any], history: Sequence[Any]) -> dict[str, Any] | None:
    """Return the checkpoints with copies of the history; None if a part of it is missing."""
    lacking = False

    def unfold(copy: Any) -> Any:
        nonlocal lacking
        if not isinstance(copy, dict) or type(shared := copy.get("first")) is not int:
            return copy
        lacking = lacking or shared > len(history)
        return [*history[:shared], *copy.get("then", [])] if shared else copy.get("then")

    whole = _with_copies(manager, unfold)
    return None if lacking else whole


def _with_copies(manager: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    checkpoints = manager.get("checkpoints")
    if not isinstance(checkpoints, list):
        return manager
    changed = [
        {**one, COPY: change(one[COPY])} if isinstance(one, dict) and COPY in one else one
        for one in checkpoints
    ]
    return {**manager, "checkpoints": changed}
