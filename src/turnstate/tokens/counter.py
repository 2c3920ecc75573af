"""The interface of all token counters.

A counter turns text into a `Count`: a number of tokens and how far to trust it. A count is *exact*
if it comes from the model's own vocabulary, *reported* if it comes from the provider, and *estimated*
otherwise. Counts can be added, and a sum is only as good as its weakest part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

Quality = Literal["exact", "reported", "estimated"]

_STRENGTH: dict[Quality, int] = {"estimated": 0, "reported": 1, "exact": 2}


class Count(Struct, frozen=True):
    """A number of tokens and its quality; the default is an exact zero."""

    tokens: int = 0
    quality: Quality = "exact"

    def __add__(self, other: Count) -> Count:
        if not isinstance(other, Count):
            return NotImplemented
        return Count(self.tokens + other.tokens, weaker(self.quality, other.quality))


class Counter(Protocol):
    """Counts the tokens of text for the vocabulary or model family that its name identifies."""

    @property
    def name(self) -> str:
        """The name by which `turnstate.tokens.counter` finds it."""
        ...

    def count(self, text: str) -> Count:
        """Count the tokens of a text by itself."""
        ...


def weaker(one: Quality, other: Quality) -> Quality:
    """Return the less trustworthy of two qualities."""
    return one if _STRENGTH[one] <= _STRENGTH[other] else other


def total(counts: Iterable[Count]) -> Count:
    """Return the sum of counts."""
    return sum(counts, Count())
