"""Places: where messages stand, by id.

What is looked up stands mostly near the end, so ids are read from the newest back, no further than
it takes and each once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..message import Message

__all__ = ["Places"]


class Places:
    """Indices by id, of a list that may grow; read lazily from an anchor outward."""

    def __init__(self, items: Sequence[Message], anchor: int) -> None:
        self._items = items
        self._known: dict[str, int] = {}
        self._read = range(anchor, anchor)

    def of(self, id: str) -> int | None:
        """Give where the message with this id stands."""
        for later in range(self._read.stop, len(self._items)):
            self._known[self._items[later].id] = later
        first = self._read.start
        while first > 0 and id not in self._known:
            first -= 1
            self._known.setdefault(self._items[first].id, first)
        self._read = range(first, len(self._items))
        return self._known.get(id)
