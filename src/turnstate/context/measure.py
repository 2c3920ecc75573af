"""Measure: ask a counter as little as possible.

Counting takes time in proportion to the text, so a giant output is not counted whole to learn that
it is too long. A token has at least one byte and at most ``LONGEST_TOKEN``: size alone settles
most questions. The beginning of a text, up to a place where tokenizers always split, settles most
of the others. Finding how much of a text fits is a search that scales its guess by what it counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tokens.counter import Counter
from ..tokens.pieces import pieces

__all__ = ["LONGEST_TOKEN", "exceeds", "tokens", "widest"]

LONGEST_TOKEN = 128
"""Bytes of the longest token of the open vocabularies: a run of spaces."""

_BEGINNING = 8  # characters for each token allowed: twice what ordinary text needs
_SCALED = 4  # guesses that follow the proportion; later ones halve what is left
_GUESSES = 24
_CLOSE = 32  # a part of what fits that is too small to search on for


def tokens(texts: Sequence[str], counter: Counter) -> int:
    """Count texts that are sent side by side."""
    return sum(counter.count(text).tokens for text in texts)


def exceeds(texts: Sequence[str], limit: int, counter: Counter) -> bool:
    """Tell whether texts have more tokens than a limit."""
    size = sum([len(text) if text.isascii() else len(text.encode()) for text in texts])
    if size <= limit:
        return False
    if size > LONGEST_TOKEN * limit:
        return True
    room = limit
    for text in texts:
        if room < 0 or _begins_beyond(text, room, counter):
            return True
        room -= counter.count(text).tokens
    return room < 0


def _begins_beyond(text: str, room: int, counter: Counter) -> bool:
    beginning = next(pieces(text, limit=max(1, _BEGINNING * room)))
    if len(beginning.text) == len(text) or not beginning.exact:
        return False
    return counter.count(beginning.text).tokens > room


def widest(cost: Callable[[int], int], limit: int, most: int) -> int:
    """Find about the largest number up to ``most`` whose cost is within the limit; 0 if there is none."""
    low, high = 0, most + 1  # the one fits, the other does not
    guess = high // 2
    for attempt in range(_GUESSES):
        if high - low <= low // _CLOSE + 1:
            break
        spent = max(1, cost(guess))
        scaled = guess * limit // spent
        if spent <= limit:
            low, scaled = guess, max(scaled, guess + guess // _CLOSE + 1)
        else:
            high, scaled = guess, min(scaled, guess - guess // _CLOSE - 1)
        guess = scaled if attempt < _SCALED and low < scaled < high else (low + high) // 2
    return low
