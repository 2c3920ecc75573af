"""Restoring: a session that goes on after its process ended, from the log or from a snapshot.

The log is the truth: where the store has the session, nothing else is looked at. Where it has not, the
newest snapshot that can be trusted begins a new log under the same id. A call that was under way when
the process ended is answered with a visible error, which is saved; its real result may still come.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from ..context.rounds import open_calls
from ..decision import INTERRUPTED, Answer
from ..snapshots import Restored
from ..stores.values import SessionRow
from .loaded import Loaded

__all__ = ["described", "interrupted"]


def interrupted(loaded: Loaded) -> list[Answer]:
    """Answer the calls that were under way when the process ended."""
    return [Answer.give(call.id, INTERRUPTED) for call in open_calls(loaded.messages)]


def described(row: SessionRow, restored: Restored) -> SessionRow:
    """Give the row of a session with what its snapshot knows of it."""
    known = restored.snapshot.extension.get("turnstate", {})
    facts: dict[str, Any] = known if isinstance(known, dict) and not restored.foreign else {}
    user, title, tags, created = (facts.get(name) for name in ("user", "title", "tags", "created"))
    return structs.replace(
        row,
        user=user if isinstance(user, str) else row.user,
        title=title if isinstance(title, str) else row.title,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else row.tags,
        created=created if type(created) is int else row.created,
    )
