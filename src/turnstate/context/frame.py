"""The frame: the two ends of a long text, and numbers for what is omitted between them.

    [Data Truncated]
    Start: Line 1-50
    …
    ... (8000 lines omitted) ...
    End: Line 8051-8100
    …

Numbers are 1-based and inclusive, and head + omitted + tail is the whole. Kept text is unchanged, with
its own line endings; a newline is added only where the frame's next words would touch it. ``framed``
keeps as much as its limit allows: all the lines wanted; or else fewer lines; or else, for giant lines,
characters; or else nothing, which is the bare frame.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from typing import Literal, Protocol

from msgspec import Struct

from ..tokens.counter import Counter
from . import text as lines
from .text import exceeds, widest

BARE = 64
"""The most characters of a bare frame (without its note), for any length of up to 17 digits."""

_DENSEST = 8  # characters kept at each end per token: twice ordinary text, not a megabyte of spaces
_LONGEST_CLUSTER = 32  # characters that are kept together; longer clusters are split

Unit = Literal["Line", "Character"]


class Frames(Struct, frozen=True):
    """How frames are made: the lines wanted at each end, and a note that comes last."""

    head: int
    tail: int
    note: str = ""


class _Ends(Protocol):
    """The two ends of a text; `frame` keeps at most `reach` characters of each."""

    @property
    def most(self) -> int: ...

    def frame(self, reach: int) -> str | None: ...


class _FrameLines(Struct, frozen=True):
    """Whole lines at both ends."""

    text: str
    note: str
    total: int
    ends: list[int]
    starts: list[int]

    @property
    def most(self) -> int:
        return max(self.ends[-1], len(self.text) - self.starts[0])

    def frame(self, reach: int) -> str | None:
        head = bisect_right(self.ends, reach)
        tail = len(self.starts) - bisect_left(self.starts, len(self.text) - reach)
        if not head or not tail:
            return None
        kept = (self.text[: self.ends[head - 1]], self.text[self.starts[-tail] :])
        return _frame("Line", kept, (head, tail), self.total, self.note)


class _Characters(Struct, frozen=True):
    """Characters at both ends, without splitting combining sequences."""

    text: str
    note: str

    @property
    def most(self) -> int:
        return (len(self.text) - 1) // 2

    def frame(self, reach: int) -> str | None:
        end, start = reach, len(self.text) - reach
        for _ in range(_LONGEST_CLUSTER):
            end -= _is_inside(self.text, end)
            start += _is_inside(self.text, start)
        if end == 0 or start == len(self.text):
            return None
        kept = (self.text[:end], self.text[start:])
        return _frame("Character", kept, (end, len(self.text) - start), len(self.text), self.note)


def framed(text: str, limit: int, counter: Counter, frames: Frames) -> str:
    """Return the frame that keeps the most of a text within a limit of tokens, or the bare frame."""
    total = lines.count(text)
    if total > frames.head + frames.tail:
        ends, starts = lines.ends(text, frames.head), lines.starts(text, frames.tail)
        by_lines = _FrameLines(text, frames.note, total, ends, starts)
        whole = by_lines.frame(by_lines.most)
        if whole and not exceeds((whole,), limit, counter):
            return whole
        if frame := _fitting(by_lines, limit, counter):
            return frame
    return _fitting(_Characters(text, frames.note), limit, counter) or bare(text, frames)


def bare(text: str, frames: Frames) -> str:
    """Return the frame that keeps nothing."""
    total, unit = lines.count(text), "lines"
    if total <= frames.head + frames.tail:
        total, unit = len(text), "characters"
    words = f"[Data Truncated]\n... ({total} {unit} omitted) ..."
    return f"{words}\n{frames.note}" if frames.note else words


def _frame(unit: Unit, kept: tuple[str, str], counts: tuple[int, int], total: int, note: str) -> str:
    (head, tail), (first, last) = kept, counts
    return (
        f"[Data Truncated]\nStart: {unit} 1-{first}\n{_closed(head)}"
        f"... ({total - first - last} {unit.lower()}s omitted) ...\n"
        f"End: {unit} {total - last + 1}-{total}\n{_closed(tail) + note if note else tail}"
    )


def _closed(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _fitting(ends: _Ends, limit: int, counter: Counter) -> str | None:
    """Return the widest frame within a limit, if there is one."""

    def cost(reach: int) -> int:
        frame = ends.frame(reach)
        return counter.count(frame).tokens if frame else 0

    reach = widest(cost, limit, min(ends.most, _DENSEST * limit))
    return ends.frame(reach) if reach else None


def _is_inside(text: str, place: int) -> bool:
    """Return True if a cut here would separate a character from what belongs to it."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if before == "\r":
        return after == "\n"
    joined = before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff"
    return joined or unicodedata.category(after) in ("Mn", "Mc", "Me")
