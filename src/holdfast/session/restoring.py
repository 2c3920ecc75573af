"""Restoring: a session that goes on after its process ended, from the log or from a snapshot.

The log is the truth: where the store has the session, nothing else is looked at. Where it has not, the
newest snapshot that can be trusted begins a new log under the same id. A call that was under way when
the process ended gets a visible error as its result, which is saved like any other.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from ..message import Message, ToolCallResult
from ..snapshots import Restored
from ..stores.values import SessionRow
from .loaded import Loaded

__all__ = ["INTERRUPTED", "described", "interrupted"]

INTERRUPTED = "[No result: the process ended while the tool was running.]"


def interrupted(loaded: Loaded) -> Message | None:
    """Give the message that answers the calls which were under way; none where there are none."""
    last = loaded.messages[-1] if loaded.messages else None
    if last is None or last.role == "user" or last.role == "system":
        return None
    open_calls = [
        call for call in loaded.batch if call.id not in loaded.results and call.id not in loaded.given_up
    ]
    if not open_calls:
        return None
    return Message.tool(
        ToolCallResult(tool_call_id=call.id, result=INTERRUPTED, is_error=True) for call in open_calls
    )


def described(row: SessionRow, restored: Restored) -> SessionRow:
    """Give the row of a session with what its snapshot knows of it."""
    known = restored.snapshot.extension.get("holdfast", {})
    facts: dict[str, Any] = known if isinstance(known, dict) and not restored.foreign else {}
    user, title, tags, created = (facts.get(name) for name in ("user", "title", "tags", "created"))
    return structs.replace(
        row,
        user=user if isinstance(user, str) else row.user,
        title=title if isinstance(title, str) else row.title,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else row.tags,
        created=created if type(created) is int else row.created,
    )
