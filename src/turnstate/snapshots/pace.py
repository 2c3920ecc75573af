"""When to write: often enough to lose little, rarely enough to cost little, and always at the end.

A pace knows whether something changed that no snapshot has yet, and when the last one was begun. It
writes nothing itself. Whoever writes asks `due` after each change, says `begin` before taking the
snapshot, says `changed` again if writing failed, and at shutdown writes once more while `pending`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..value import check_number

__all__ = ["SnapshotPace"]


class SnapshotPace:
    """At most one snapshot in so many seconds, and none of the last changes forgotten."""

    def __init__(self, every: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        check_number("every", every, least=0, most=86_400)
        self._every = every
        self._clock = clock
        self._begun: float | None = None
        self._pending = False

    @property
    def pending(self) -> bool:
        """Whether something changed since the last snapshot was begun."""
        return self._pending

    def changed(self) -> None:
        """Note that there is something to write."""
        self._pending = True

    def due(self) -> bool:
        """Tell whether to write now."""
        return self._pending and self._left() <= 0

    def wait(self) -> float | None:
        """Give the seconds until the next snapshot is due, or nothing where nothing changed."""
        return max(0.0, self._left()) if self._pending else None

    def begin(self) -> None:
        """Begin a snapshot: it covers what changed until now, and what changes while it is written is new."""
        self._pending = False
        self._begun = self._clock()

    def _left(self) -> float:
        if self._begun is None:
            return 0.0
        passed = self._clock() - self._begun
        return self._every - passed if passed >= 0 else 0.0  # a clock that ran backwards delays nothing
