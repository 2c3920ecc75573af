"""What runs in the event loop's thread, and what in another: one rule, and the limits that it needs.

Work runs in the loop's thread if it takes at most about two milliseconds, which no other task of the loop
notices, and else in a thread. How long it takes is known before, from the size of what it works on, so each
limit is the size of one kind of work that takes this long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .long_json import exceeds

T = TypeVar("T")

INLINE = 20_000
"""Characters to count or encode: two milliseconds in the estimator, the slowest of the counters."""

READ = 64_000
"""Bytes of entries to read and decode: less than a millisecond."""

PASSED = 4_000_000
"""Bytes of messages that a cut may have to pass through, whose counts are known."""

MESSAGE = 50
"""How many characters take as long to count as adding a message whose count is known."""

ENTRIES = 128
"""Entries of a path that a small read may return, unless they are long."""


async def off_loop(work: Callable[[], T], *, large: bool) -> T:
    """Run large work in a thread and small work inline; without a running loop, run everything inline."""
    if not large:
        return work()
    import asyncio  # already imported in a process that runs a loop

    return await asyncio.to_thread(work) if asyncio._get_running_loop() else work()


def is_large(*values: Any) -> bool:
    """Return True if values hold more text than is processed inline, reading no further than needed."""
    return exceeds(INLINE, *values)
