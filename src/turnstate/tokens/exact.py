"""Exact counting with an open vocabulary.

The numbers are those of the model's own tokenizer. Names of special tokens, such as
``<|endoftext|>``, are counted as the ordinary text that they are in a message: no text can
smuggle one in. Counting never fails on a text. One that the tokenizer gives up on is counted in
part by the estimator, and the result says so.
"""

from __future__ import annotations

from msgspec import Struct

from ..errors import UnknownName
from . import vocabulary
from .counter import Count, total
from .estimate import Estimator
from .pieces import LIMIT, Piece, pieces

__all__ = ["ExactCounter"]


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
