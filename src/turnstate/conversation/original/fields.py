"""The fields that no message says, as the original has them: tools, sticky files, model, trackers.

What the user's own tools are called here is native there. A conversation from the original has all
fields as they came beside ours, so far as ours would be written otherwise.
"""

from __future__ import annotations

from typing import Any

from ...catalog import ModelInfo
from .. import settings
from ..state import ConversationState
from ..tools import CUSTOM, NATIVE, tools_to_json
from ..tracker import FileLineTracker

__all__ = ["KEPT", "restore", "written"]

KEPT = "original"
"""Where a state keeps what came from the original and has no place of ours."""

_TRACKED = (
    "prev_fswrite_lines",
    "before_fswrite_lines",
    "after_fswrite_lines",
    "lines_added_by_agent",
    "lines_removed_by_agent",
    "is_first_write",
)


def restore(state: ConversationState, document: dict[str, Any]) -> None:
    """Set what a document says, as far as we have a place for it."""
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
    """Write the fields; those that the original leaves out where they are null are left out."""
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
