"""Foreign words in our own sentences: one line, clean, quoted.

What users, tools and models said is data. Where it stands in a text that Turnstate writes, it must
not begin a line, end its quotation, or hide characters that nobody sees: so white space collapses,
control and invisible characters go, and our quotation marks never occur inside. Otherwise the words
stay as they were. Only the beginning of a long text is ever looked at, so the cost is bounded.
"""

from __future__ import annotations

import re

__all__ = ["cut", "line", "quoted", "visible", "word"]

ELLIPSIS = "…"
_OPEN, _CLOSE = "“", "”"
_PLAIN_MARKS = str.maketrans({_OPEN: '"', _CLOSE: '"'})

_SPARE = 40  # characters looked at beyond the limit, since white space will collapse
_FAR = 4_000  # characters searched for the first word of a text that begins with white space

_INVISIBLE = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]"  # a terminal's colours
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad]"  # controls that are no white space, soft hyphens
    "|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"  # zero width, direction
    "|[\U000e0000-\U000e007f]"  # tags: a second, unseen alphabet
)
_SENTENCE_END = re.compile(r"[.!?](?= )|[。！？]")
_BARE = re.compile(r"[A-Za-z0-9_./\\:@#~+=%$*-]+")


def visible(text: str) -> str:
    """Remove what a reader would not see; white space stays."""
    return text if text.isprintable() else _INVISIBLE.sub("", text)


def line(text: str, most: int) -> str:
    """Give the beginning of a text as one clean line of at most that many characters."""
    look = most + _SPARE
    if text[:look].isspace():
        text = text[:_FAR].lstrip()
    words = " ".join(text[:look].split())
    if not words.isprintable():
        words = " ".join(_INVISIBLE.sub("", words).split())
    return words if len(text) <= look and len(words) <= most else cut(words, most, more=len(text) > look)


def cut(words: str, most: int, *, more: bool = False) -> str:
    """Shorten a line: at the end of a sentence if one ends in its second half, else between words."""
    if len(words) <= most and not more:
        return words
    whole = len(words) < most
    end = max(0, most - 1)
    ends = [match.end() for match in _SENTENCE_END.finditer(words, most // 2, most) if match.end() <= end]
    edge = ends[-1] if ends else words.rfind(" ", most // 2, most)
    return words[: edge if edge > 0 and not whole else end].rstrip() + ELLIPSIS


def quoted(text: str, most: int) -> str:
    """Give the beginning of a text in quotation marks that nothing inside can close."""
    return f"{_OPEN}{line(text, most).translate(_PLAIN_MARKS)}{_CLOSE}"


def word(text: str, most: int) -> str:
    """Give a name, a path or an id as it stands if it is one plain word, quoted if it is not.

    A long one keeps its end, which is where paths differ.
    """
    whole = line(text, len(text) or 1)
    if len(whole) > most:
        whole = ELLIPSIS + whole[1 - most :]
    return whole if _BARE.fullmatch(whole) else quoted(whole, most)
