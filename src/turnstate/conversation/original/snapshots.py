"""The original's checkpoints: foreign data that is carried along, without its copies of the history.

The original keeps a copy of the whole history in each checkpoint. Here a copy is the number of exchanges
that it shares with the main conversation, and what follows them; so a conversation with a hundred
checkpoints is not a hundred conversations. Everything else is as it came. The shadow repository that they
speak of belongs to the original, and is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

__all__ = ["folded", "unfolded"]

COPY = "history_snapshot"

_encode = msgspec.json.Encoder(order="deterministic").encode


def folded(manager: dict[str, Any], history: Sequence[Any]) -> dict[str, Any]:
    """Give the checkpoints with their copies in terms of a history."""
    known = [_encode(entry) for entry in history]

    def fold(copy: Any) -> Any:
        shared = 0
        if not isinstance(copy, list):
            return {"first": shared, "then": copy}
        while shared < min(len(copy), len(known)) and _encode(copy[shared]) == known[shared]:
            shared += 1
        return {"first": shared, "then": copy[shared:]}

    return _with_copies(manager, fold)


def unfolded(manager: dict[str, Any], history: Sequence[Any]) -> dict[str, Any] | None:
    """Give the checkpoints with copies of the history; None where a part of it is not there."""
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
