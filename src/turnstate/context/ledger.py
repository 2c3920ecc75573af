"""The ledger: running totals that grow at both ends.

Totals are kept relative to an anchor, so that counting further back costs only what is counted,
and appending costs only what is appended. Any range is one subtraction.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Ledger"]


class Ledger:
    """Costs by index, counted lazily from an anchor outward."""

    def __init__(self, anchor: int, cost: Callable[[int], int]) -> None:
        self._anchor = anchor
        self._cost = cost
        self._back = [0]
        self._forth = [0]

    @property
    def first(self) -> int:
        """The first index that is counted."""
        return self._anchor - len(self._back) + 1

    def between(self, start: int, end: int) -> int:
        """Give the sum of the costs from `start` up to, not including, `end`."""
        self._reach(start)
        self._reach(end)
        return self._at(end) - self._at(start)

    def exceeds(self, start: int, end: int, room: int) -> bool:
        """Tell whether a range costs more than the room, counting back no further than it takes."""
        self._reach(end)
        counted = max(start, self.first)
        left = room - (self._at(end) - self._at(counted))
        for index in range(counted - 1, start - 1, -1):
            if left < 0:
                break
            cost = self._cost(index)
            self._back.append(self._back[-1] + cost)
            left -= cost
        return left < 0

    def _reach(self, index: int) -> None:
        if index < self._anchor:
            for earlier in range(self.first - 1, index - 1, -1):
                self._back.append(self._back[-1] + self._cost(earlier))
        else:
            for later in range(self._anchor + len(self._forth) - 1, index):
                self._forth.append(self._forth[-1] + self._cost(later))

    def _at(self, index: int) -> int:
        offset = index - self._anchor
        return self._forth[offset] if offset >= 0 else -self._back[-offset]
