"""States that hold a few exchanges instead of 10,000, so that a short conversation reaches the cap."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["state_cap"]

_NAMES = ("MAX_CONVERSATION_STATE_HISTORY_LEN", "MAX_TRANSCRIPT_LEN")


@contextmanager
def state_cap(exchanges: int) -> Iterator[int]:
    """Let states hold so many exchanges and lines, in every module that knows the numbers."""
    loaded = [one for key, one in sys.modules.items() if key.startswith("turnstate.")]
    before = {(one, name): getattr(one, name) for one in loaded for name in _NAMES if hasattr(one, name)}
    assert {name for _, name in before} == set(_NAMES)
    try:
        for one, name in before:
            setattr(one, name, exchanges)
        yield exchanges
    finally:
        for (one, name), value in before.items():
            setattr(one, name, value)
