"""Clocks in milliseconds, and when a wall clock can be trusted.

A session ends by itself after an idle time. A wall clock that jumps ahead would end every session at once,
so a manager compares the wall clock with a monotonic one before it ends anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["JUMP", "Clock", "ClockWatch", "milliseconds", "monotonic_clock", "utc", "wall_clock"]

Clock = Callable[[], int]

JUMP = 60_000
"""Milliseconds by which two clocks may differ, and for which they must agree after they did."""

AGREEMENT = 1_000
"""Milliseconds by which two clocks that agree may drift apart in that time."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def utc(moment: int) -> datetime:
    """Return milliseconds since 1970 as a time in UTC; one out of range is moved to the nearest end."""
    since = min(max(moment, 0), _LAST)
    return _EPOCH + timedelta(milliseconds=since)


def milliseconds(moment: datetime) -> int:
    """Return a time, which must have a time zone, as milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def monotonic_clock() -> int:
    """Return the milliseconds of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """Compares a wall clock with a monotonic one at each call of `trusts`."""

    def __init__(self, clock: Clock, monotonic: Clock) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._seen = clock(), monotonic()
        self._jumped = False

    def trusts(self) -> bool:
        """Return True if the wall clock can be trusted: after a jump, once both agreed for a minute."""
        wall, steady = self._clock(), self._monotonic()
        passed = steady - self._seen[1]
        ahead = wall - self._seen[0] - passed
        if ahead > JUMP or (self._jumped and abs(ahead) > AGREEMENT):
            self._jumped = True
        elif not self._jumped or passed >= JUMP:
            self._jumped = False
        else:
            return False  # they agree, but not for long enough yet
        self._seen = wall, steady
        return not self._jumped
