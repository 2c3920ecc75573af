"""Counting that leaves an event loop free.

The tokenizer gives up Python's lock while it works, so a thread counts a long text while the
loop goes on. A short text takes less time than the way to a thread and back.
"""

from __future__ import annotations

from .counter import Count, Counter
from .exact import ExactCounter

__all__ = ["INLINE", "count_off_loop"]

INLINE = 20_000
"""Characters that are counted on the spot: two milliseconds, a pause that no user notices."""


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text without holding up the event loop, a vocabulary's first loading included."""
    unloaded = isinstance(counter, ExactCounter) and not counter.is_loaded
    if len(text) <= INLINE and not unloaded:
        return counter.count(text)
    import asyncio  # whoever runs a loop has it loaded already

    return await asyncio.to_thread(counter.count, text)
