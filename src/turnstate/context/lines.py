"""Lines: where a text has them, and how to get at some of them without splitting it all.

A line ends with ``\\n``, ``\\r\\n``, a lone ``\\r``, U+2028 or U+2029, as in JavaScript and JSON
viewers, and its end belongs to it: lines put side by side are the text again, character for
character. A final end opens no further line; a text that lacks it has its last line all the same;
the empty text has none. Form feeds and the like are ordinary characters, so that a log has the
lines that an editor shows.

Ends are searched one kind at a time with `str.find`, since a pattern takes a fifth of a second to walk
through ten megabytes, and other threads wait for it.
"""

from __future__ import annotations

from operator import itemgetter

from ..errors import InputError

__all__ = ["count", "ends", "full_range", "starts"]

_ENDS = "\n\r\u2028\u2029"


def count(text: str) -> int:
    """Count the lines of a text."""
    ended = sum(text.count(end) for end in _ENDS) - text.count("\r\n")
    return ended + (text[-1:] not in _ENDS)


def ends(text: str, most: int) -> list[int]:
    """Give where the first lines end, at most so many."""
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
    """Give where the last lines begin, at most so many, in the order of the text."""
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
    """Give the lines from the first to the last, 1-based and inclusive, as far as the text has them."""
    if first < 1 or last < first:
        raise InputError(f"lines are counted from 1, the first one first: {first}-{last} is no range")
    offsets = [0, *ends(text, last)]
    return text[offsets[min(first, len(offsets)) - 1] : offsets[-1]]
