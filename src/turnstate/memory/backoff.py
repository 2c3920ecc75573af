"""Backoff: how long to wait before the next try, longer each time and never the same for two.

Seven waits lead from five seconds to six hours, seven and a half hours in all: an engine that is down
for a night finds its parcels waiting. Half of each wait is left to chance, so that a thousand parcels
which failed together do not come back together.
"""

from __future__ import annotations

from random import Random

__all__ = ["FIRST", "LONGEST", "MOST_TRIES", "wait"]

MOST_TRIES = 8
FIRST = 5_000
FACTOR = 4
LONGEST = 6 * 3600 * 1000


def wait(tries: int, random: Random) -> int:
    """Give the milliseconds to wait after so many tries."""
    longest = min(LONGEST, FIRST * FACTOR ** max(0, tries - 1))
    return int(longest * random.uniform(0.5, 1.0))
