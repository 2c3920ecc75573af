"""The index for search: it holds the words of every message, and nothing else.

Both sides are summed up, a number for every pair of entry and word, in whatever order: what the index
has is read from its vocabulary, what it should have from the messages. Where the sums differ, the
index is built again from the messages.
"""

from __future__ import annotations

import zlib

import apsw

from ....entry import decode
from ....errors import TurnstateError
from ....message import Message
from ....words import words_of
from ...values import MESSAGE
from ..queries import query

__all__ = ["PAGE", "add_missing_words", "agrees", "empty_index", "indexed", "spoken"]

PAGE = 500
_START: int | None = 0


def indexed(db: apsw.Connection) -> tuple[int, int]:
    """Sum up what the index has, and give the newest entry that there is in this moment."""
    ((last,),) = db.execute(query("last_key"))
    db.execute(query("make_vocabulary"))
    return sum(_sum(entry, word) for word, entry in db.execute(query("vocabulary"))), last or 0


def spoken(db: apsw.Connection, after: int, last: int) -> tuple[int, int | None]:
    """Sum up what the index should have of a page of entries, and give where the next begins."""
    total, entry, count = 0, after, 0
    for entry, kind, body in db.execute(query("bodies"), {"after": after, "last": last, "limit": PAGE}):
        total += sum(_sum(entry, word) for word in _words(kind, body))
        count += 1
    return total, entry if count == PAGE else None


def agrees(db: apsw.Connection) -> bool:
    """Tell whether both sides are the same, in one moment: it takes long where there is much."""
    (total, last), after = indexed(db), _START
    while after is not None:
        summed, after = spoken(db, after, last)
        total -= summed
    return total == 0


def empty_index(db: apsw.Connection) -> None:
    """Forget all words."""
    db.execute(query("empty_words"))


def add_missing_words(db: apsw.Connection, after: int) -> int | None:
    """Add the words of a page of messages that are not in the index, and give where the next page begins."""
    page = list(db.execute(query("not_indexed"), {"after": after, "limit": PAGE}))
    for (entry,) in page:
        ((_, kind, body),) = db.execute(query("bodies"), {"after": entry - 1, "last": entry, "limit": 1})
        if found := _words(kind, body):
            db.execute(query("add_words"), {"key": entry, "words": " ".join(found)})
    return page[-1][0] if len(page) == PAGE else None


def _words(kind: str, body: bytes) -> list[str]:
    try:
        message = decode(kind, body) if kind == MESSAGE else None
    except TurnstateError:
        return []
    return words_of(message) if isinstance(message, Message) else []


def _sum(entry: int, word: str) -> int:
    return zlib.crc32(word.encode(), entry & 0xFFFFFFFF)
