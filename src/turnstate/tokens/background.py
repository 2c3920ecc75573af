"""Work that leaves an event loop free.

The tokenizer releases Python's lock while it works, so a thread counts a long text while the loop
goes on. What holds the lock is done in steps of a few milliseconds, between which the loop runs. A
short text takes less time than the way to a thread and back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from .counter import Count, Counter
from .exact import ExactCounter

__all__ = ["INLINE", "count_off_loop", "is_large", "off_loop"]

T = TypeVar("T")

INLINE = 20_000
"""Characters that are counted on the spot: two milliseconds, a pause that no user notices."""


async def off_loop(work: Callable[[], T], *, large: bool) -> T:
    """Do large work in a thread and small work at once."""
    if not large:
        return work()
    import asyncio  # whoever runs a loop has it loaded already

    return await asyncio.to_thread(work)


def is_large(*values: Any) -> bool:
    """Tell whether values hold more text than is worked on inline, looking at no more than that."""
    left, rest = INLINE, list(values)
    while rest and left >= 0:
        value = rest.pop()
        if isinstance(value, str | bytes):
            left -= len(value)
        elif isinstance(value, Struct):
            rest += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, dict | list | tuple):
            left -= len(value)
            if left >= 0:
                rest += [*value, *value.values()] if isinstance(value, dict) else value
    return left < 0


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text without holding up the event loop, a vocabulary's first loading included."""
    unloaded = isinstance(counter, ExactCounter) and not counter.is_loaded
    return await off_loop(lambda: counter.count(text), large=len(text) > INLINE or unloaded)
