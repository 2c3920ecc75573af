"""The clock of the sessions: milliseconds, when to trust them, and a name for whoever writes.

A session ends by itself when it was left idle, which a wall clock that jumps ahead would make of every
session at once. So a manager compares the wall clock with one that only counts, and a store that has a
clock of its own is asked for it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from ..errors import ClockSkew
from ..stores.port import Health

__all__ = ["JUMP", "Clock", "ClockWatch", "check_store_time", "holder_name", "monotonic_clock", "wall_clock"]

Clock = Callable[[], int]

JUMP = 60_000
"""Milliseconds by which two clocks may differ, and for which they must agree after they did."""

AGREEMENT = 1_000
"""Milliseconds by which two clocks that agree may drift apart in that time."""


def wall_clock() -> int:
    """Read the wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_clock() -> int:
    """Read a clock in milliseconds that is never set."""
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """Compares a wall clock with a monotonic one, from look to look."""

    def __init__(self, clock: Clock, monotonic: Clock) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._seen = clock(), monotonic()
        self._jumped = False

    def trusts(self) -> bool:
        """Return whether the wall clock can be trusted: not from a jump on until both agree for a minute."""
        wall, steady = self._clock(), self._monotonic()
        passed = steady - self._seen[1]
        ahead = wall - self._seen[0] - passed
        if ahead > JUMP or (self._jumped and abs(ahead) > AGREEMENT):
            self._jumped = True
        elif not self._jumped or passed >= JUMP:
            self._jumped = False
        else:
            return False  # they agree, and not for long enough yet
        self._seen = wall, steady
        return not self._jumped


async def check_store_time(store: Health, clock: Clock) -> None:
    """Raise `ClockSkew` if the store has a clock of its own that differs by more than a minute."""
    theirs = await store.time()
    ahead = 0 if theirs is None else clock() - theirs
    if abs(ahead) > JUMP:
        how = f"{abs(ahead) / 1_000:,.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        raise ClockSkew(f"the clock of this machine is {how} the store's; set it, nothing was ended")


def holder_name() -> str:
    """Name this process, for people who ask who holds a lease."""
    return f"{socket.gethostname()}:{os.getpid()}"
