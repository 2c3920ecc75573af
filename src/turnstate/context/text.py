r"""Lines: where they are in a text, and how to get some of them without splitting it all.

A line ends with ``\n``, ``\r\n``, a lone ``\r``, U+2028 or U+2029, as in JavaScript and JSON
viewers, and its ending belongs to it: concatenated lines are the text again, character for
character. A final line ending does not start another line; a last line without an ending counts as
a line; the empty text has none. Form feeds and the like are ordinary characters, so a log has the
same lines as in an editor.

Each kind of ending is searched for separately with `str.find`, since a regular expression takes a fifth of a
second for ten megabytes, and other threads wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from ..errors import InputError
from ..tokens.counter import Counter
from ..tokens.pieces import pieces

_STEP = 1_000_000  # characters
_ENDS = "\n\r\u2028\u2029"


def count(text: str) -> int:
    """Count the lines of a text."""
    ended = sum(_count(text, end) for end in _ENDS) - _count(text, "\r\n")
    return ended + (text[-1:] not in _ENDS)


def _count(text: str, end: str) -> int:
    """Count in steps: one call on many megabytes would keep other threads waiting."""
    more = len(end) - 1
    return sum(text.count(end, start, start + _STEP + more) for start in range(0, len(text), _STEP))


def ends(text: str, most: int) -> list[int]:
    """Return where the first lines end, for at most `most` lines."""
    found = list[int]()
    at = {end: place for end in _ENDS if (place := text.find(end)) >= 0}
    while at and len(found) < most:
        end, place = min(at.items(), key=itemgetter(1))
        if end != "\r" or text[place + 1 : place + 2] != "\n":
            found.append(place + 1)
        at[end] = text.find(end, place + 1)
        if at[end] < 0:
            del at[end]
    if len(found) < most and text[-1:] not in _ENDS:
        found.append(len(text))
    return found


def starts(text: str, most: int) -> list[int]:
    """Return where the last lines begin, for at most `most` lines, in text order."""
    found = list[int]()
    at = {end: place for end in _ENDS if (place := text.rfind(end)) >= 0}
    while at and len(found) < most:
        end, place = max(at.items(), key=itemgetter(1))
        if place + 1 < len(text) and (end != "\r" or text[place + 1] != "\n"):
            found.append(place + 1)
        at[end] = text.rfind(end, 0, place)
        if at[end] < 0:
            del at[end]
    if len(found) < most and text:
        found.append(0)
    return found[::-1]


def full_range(text: str, first: int, last: int) -> str:
    """Return the lines from `first` to `last`, 1-based and inclusive, as far as they exist."""
    if first < 1 or last < first:
        raise InputError(
            f"{first}-{last} is not a range of lines; "
            "lines count from 1, and the first must not be after the last"
        )
    offsets = [0, *ends(text, last)]
    return text[offsets[min(first, len(offsets)) - 1] : offsets[-1]]


# Measuring: call the counter as little as possible.


LONGEST_TOKEN = 128
"""The bytes of the longest token in the open vocabularies: a run of spaces."""

_BEGINNING = 8  # characters per allowed token: twice what ordinary text needs
_SCALED = 4  # guesses by proportion; later ones bisect the rest
_GUESSES = 24
_CLOSE = 32  # stop once the gap is this small a fraction of what fits


def tokens(texts: Sequence[str], counter: Counter) -> int:
    """Return the tokens of texts that are sent together."""
    return sum(counter.count(text).tokens for text in texts)


def exceeds(texts: Sequence[str], limit: int, counter: Counter) -> bool:
    """Return True if texts together have more tokens than a limit."""
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
    low, high = 0, most + 1  # low fits, high does not
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
