"""Split a long text into pieces whose token counts add up to that of the whole.

A tokenizer first splits text into words, numbers, runs of punctuation and runs of white space,
and never looks back. So a text may be cut wherever the tokenizer always splits: the sum of the
counts is exact. Three such seams work for both open vocabularies:

- between a letter or a digit and white space or punctuation, except an apostrophe (``don't``);
- between a letter and a digit, in either order;
- after a line break, unless white space or a slash follows.

A stretch without a seam is cut anywhere, and the piece is marked: the count may be off by a token. The
estimator processes a long text in such pieces, and a text that is far too long is judged by its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

_STEP = 10_000  # characters in one search for a seam: two milliseconds

# Only letters that have been letters since Unicode 5: newer ones may be unknown to the tokenizer.
_LETTER = (
    "A-Za-zÀ-ÖØ-öø-ʯΑ-ΡΣ-ώА-ҁҊ-ԓא-ת\u0621-\u063a\u0641-\u064aऄ-ह\u0e01-\u0e30ぁ-ゖァ-ヺー㐀-䶵一-龥가-힣"
)
_SPACE = r" \t\r\n\u3000"
_MARK = r"!-&(-/:-@\[-`{-~。、，．！？；：「」『』（）【】《》“”…—"

_SEAMS = (
    rf"(?<=[{_LETTER}0-9])(?=[{_SPACE}{_MARK}])",
    rf"(?<=[{_LETTER}])(?=[0-9])",
    rf"(?<=[0-9])(?=[{_LETTER}])",
    rf"(?<=\n)(?=[{_LETTER}0-9!-.:-@\[-`{{-~])",
)


class TextPiece(Struct, frozen=True):
    """A piece of a text, and whether the cut at its end is exact."""

    text: str
    exact: bool


def pieces(text: str, *, limit: int) -> Iterator[TextPiece]:
    """Split a text into pieces of at most `limit` characters, each at the last seam within the limit."""
    start = 0
    while len(text) - start > limit:
        seam = _last_seam(text, start, start + limit)
        end = start + limit if seam is None else seam
        yield TextPiece(text[start:end], exact=seam is not None)
        start = end
    yield TextPiece(text[start:], exact=True)


def _last_seam(text: str, start: int, end: int) -> int | None:
    """Return the last seam after `start` and up to `end`, searching in short steps from the end."""
    for last in range(end, start, -_STEP):
        # Greedy, so it finds the last seam; reads one more character, since a seam depends on the next one.
        if seam := _to_last_seam().match(text, max(start, last - _STEP), last + 1):
            return seam.end()
    return None


@cache  # takes five milliseconds to compile, and few texts are long enough to need it
def _to_last_seam() -> re.Pattern[str]:
    return re.compile(rf"(?s:.)+(?:{'|'.join(_SEAMS)})")
