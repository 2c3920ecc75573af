"""Lines: where a text has them, and how to get at some of them without splitting it all.

A line ends with ``\\n``, ``\\r\\n``, a lone ``\\r``, U+2028 or U+2029, as in JavaScript and JSON
viewers, and its end belongs to it: lines put side by side are the text again, character for
character. A final end opens no further line; a text that lacks it has its last line all the same;
the empty text has none. Form feeds and the like are ordinary characters, so that a log has the
lines that an editor shows.
"""

from __future__ import annotations

import re
from itertools import islice

from ..errors import InputError

__all__ = ["count", "ends", "full_range", "starts"]

_ENDS = "\n\r\u2028\u2029"
_END = re.compile(f"\r\n|[{_ENDS}]")
_FIRST_REACH = 16_384  # characters searched at first when looking back; four times as many until enough


def count(text: str) -> int:
    """Count the lines of a text."""
    ended = sum(text.count(end) for end in _ENDS) - text.count("\r\n")
    return ended + (text[-1:] not in _ENDS)


def ends(text: str, most: int) -> list[int]:
    """Give where the first lines end, at most so many."""
    found = [match.end() for match in islice(_END.finditer(text), most)]
    if len(found) < most and text[-1:] not in _ENDS:
        found.append(len(text))
    return found


def starts(text: str, most: int) -> list[int]:
    """Give where the last lines begin, at most so many, in the order of the text."""
    reach = _FIRST_REACH
    while True:
        begin = max(0, len(text) - reach)
        found = [match.end() for match in _END.finditer(text, begin) if match.end() < len(text)]
        if begin == 0 and text:
            found.insert(0, 0)
        if len(found) >= most or begin == 0:
            return found[-most:]
        reach *= 4


def full_range(text: str, first: int, last: int) -> str:
    """Give the lines from the first to the last, 1-based and inclusive, as far as the text has them."""
    if first < 1 or last < first:
        raise InputError(f"lines are counted from 1, the first one first: {first}-{last} is no range")
    offsets = [0, *ends(text, last)]
    return text[offsets[min(first, len(offsets)) - 1] : offsets[-1]]
