"""A clock that stands still until a test moves it."""

from __future__ import annotations

__all__ = ["FixedClock"]

_START = 1_750_000_000_000  # a day in June 2025


class FixedClock:
    """Tells milliseconds since 1970, like the clocks that sessions and stores are given."""

    def __init__(self, now: int = _START) -> None:
        self._now = now

    def __call__(self) -> int:
        """Tell the time."""
        return self._now

    def advance(self, ms: int) -> int:
        """Let time pass, and tell it; a negative time sets the clock back, as a wrong clock may be."""
        self._now += ms
        return self._now

    def set(self, ms: int) -> None:
        """Make it that time."""
        self._now = ms
