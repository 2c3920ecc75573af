"""The port of every way of counting.

A counter turns text into a `Count`: a number of tokens and how far to trust it. A count is
*exact* when the model's own vocabulary gave it, *reported* when the provider said so, and
*estimated* otherwise. Counts add up, and a sum is only as good as its weakest part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

__all__ = ["Count", "Counter", "Quality", "total", "weaker"]

Quality = Literal["exact", "reported", "estimated"]

_STRENGTH: dict[Quality, int] = {"estimated": 0, "reported": 1, "exact": 2}


class Count(Struct, frozen=True):
    """A number of tokens that says how it came about; nothing at all is an exact zero."""

    tokens: int = 0
    quality: Quality = "exact"

    def __add__(self, other: Count) -> Count:
        if not isinstance(other, Count):
            return NotImplemented
        return Count(self.tokens + other.tokens, weaker(self.quality, other.quality))


class Counter(Protocol):
    """Counts text. The name says which vocabulary or model family the numbers are in."""

    @property
    def name(self) -> str:
        """The name under which `turnstate.tokens.counter` finds it again."""
        ...

    def count(self, text: str) -> Count:
        """Count the tokens of a text, on its own."""
        ...


def weaker(one: Quality, other: Quality) -> Quality:
    """Return the less trustworthy of two qualities."""
    return one if _STRENGTH[one] <= _STRENGTH[other] else other


def total(counts: Iterable[Count]) -> Count:
    """Add counts up."""
    return sum(counts, Count())
