"""Exact counting with an open vocabulary.

The numbers are those of the model's own tokenizer. Names of special tokens, such as
``<|endoftext|>``, are counted as the ordinary text that they are in a message: no text can
smuggle one in. Counting never fails on a text. One that the tokenizer gives up on is counted in
part by the estimator, and the result says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from ..errors import UnknownName
from ..long_json import exceeds
from . import vocabulary
from .counter import Count, Counter, total
from .estimate import Estimator
from .pieces import LIMIT, Piece, pieces

__all__ = ["INLINE", "ExactCounter", "count_off_loop", "is_large", "off_loop"]


class ExactCounter(Struct, frozen=True):
    """Counts with ``o200k_base`` or ``cl100k_base``."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in vocabulary.SIZES:
            known = ", ".join(sorted(vocabulary.SIZES))
            raise UnknownName(f"no open vocabulary is called {self.name!r:.60}; there are {known}")

    @property
    def is_loaded(self) -> bool:
        """Whether the vocabulary is in memory; the first count loads it."""
        return vocabulary.is_loaded(self.name)

    def count(self, text: str) -> Count:
        """Count a text: exactly, unless it has no seam for 100,000 characters."""
        if len(text) > LIMIT:
            return total(map(self._counted_piece, pieces(text)))
        encoding = vocabulary.encoding(self.name)
        try:
            # Not `encode_ordinary`: where the pattern overflows, that one panics past `except Exception`.
            return Count(len(encoding.encode(text, disallowed_special=())), "exact")
        except ValueError:
            return Estimator().count(text)

    def _counted_piece(self, piece: Piece) -> Count:
        count = self.count(piece.text)
        return count if piece.exact else Count(count.tokens, "estimated")


# Work that leaves an event loop free.


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
    return exceeds(INLINE, *values)


async def count_off_loop(counter: Counter, text: str) -> Count:
    """Count a text without holding up the event loop, a vocabulary's first loading included."""
    unloaded = isinstance(counter, ExactCounter) and not counter.is_loaded
    return await off_loop(lambda: counter.count(text), large=len(text) > INLINE or unloaded)
