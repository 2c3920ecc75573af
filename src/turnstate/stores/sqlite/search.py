"""Search in SQLite: an index of words that follows the log, and a scan of entries that it does not have yet.

    entry   1 2 3 4 5 6 7 8 9        an append writes here, and is acknowledged
    word    1 2 3 4 5 6              the index, which the writer continues when it is idle

The index itself records what it contains: a message is indexed if `word_docsize` has a row for it. All that
is missing comes after its newest row. A key is assigned while the file's only write lock is held, so no
transaction with a lower key commits later. Keys of deleted entries are never reused (AUTOINCREMENT), and no
one saw the keys of a transaction that was rolled back. Only salvage chooses its own keys, in a new file whose
index it builds. The transaction that indexes a message checks again that it still exists and is still
missing, so no words remain of a session that was erased in the meantime, and none are written twice.

A search first lets the writer catch up. If messages are still missing, because the file cannot be written or
there are too many, the search reads them and splits them into words itself, so the hits are the same. Only
session rows promise entries that are not indexed, so if keys are missing, all entries are counted. A damaged
entry stops the index, and is a damaged hit of every search until it is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from ...errors import StoreDamaged
from ...search_terms import entry_text, entry_words
from ..values import MESSAGE, Hit
from .connection import Connection, with_lock
from .queries import SQL
from .rows import entry_row, unreadable_row
from .soundness import check_lists, once

STEP = 256
"""Entries to index in one transaction, during which other processes cannot write."""

STEP_BYTES = 1_000_000
"""Bytes of entries after which such a transaction is full; they are read together."""

MOST_BEHIND = 10_000
"""Entries that a search waits to see indexed; if more are missing, it reads them instead."""

LEAST_FREE, PAGES_PER_FREE = 16, 32
"""Free pages are kept for later writes: up to `LEAST_FREE`, or one in `PAGES_PER_FREE` if that is more."""

GIVEN_BACK = 256
"""Free pages to give back at a time, which takes one or two milliseconds."""

_LAST_KEY = 2**63 - 1
_MOST_SESSIONS = 200  # of a user whose key ranges are looked up before a search: about a millisecond

_WORD = re.compile("[a-z0-9_\x80-\U0010ffff]+").fullmatch
"""Matches a single token of the index; anything else would be a query of several tokens, or invalid."""

_ROWS_CAN_BE_DELETED = b"\xff\0\0\1"  # a marker in the index, whose rows have no values of their own

_INDEX_IS_DAMAGED = "the search index is damaged; run `turnstate verify --repair`"


def behind(db: apsw.Connection) -> int:
    """Return how many entries are missing in the index, counting at most one more than a search waits for."""
    which = {"after": newest_indexed(db), "limit": MOST_BEHIND + 1}
    ((count,),) = db.execute(SQL["count_after_index"], which)
    return int(count)


def newest_indexed(db: apsw.Connection) -> int:
    """Return the key of the newest message in the index; raise `StoreDamaged` if it is not a message."""
    ((key, is_message),) = db.execute(SQL["newest_indexed"])
    if key is not None and not is_message and entries_are_there(db):
        raise StoreDamaged(_INDEX_IS_DAMAGED)
    return int(key or 0)


class _Some(NamedTuple):
    """Entries to index: how many, the last key, the words of the messages, and whether more follow."""

    size: int
    last: int
    words: list[tuple[int, str]]
    more: bool


def index_some(db: Connection) -> bool:
    """Index the next messages in a transaction of their own; return True if there may be more."""
    some = db.snapshot(_some_missing)
    if some.words:
        with_lock(db, lambda: _add(db, some.words))
    if not some.more:
        _give_back(db)
    return some.more


def _some_missing(db: apsw.Connection) -> _Some:
    after = newest_indexed(db)
    some = _some(db, after, stop_at_damage=True)
    if some.more or some.size:
        _check_complete(db, after, some.last if some.more else _newest_key(db, after), some.size)
    return some


def _give_back(db: Connection) -> None:
    """Return free pages to the file system if there are many: merging the index frees as many as it read."""
    free, pages = db.pragma("freelist_count"), db.pragma("page_count")
    if free > max(LEAST_FREE, pages // PAGES_PER_FREE):
        with db.writing():
            db.execute(f"PRAGMA incremental_vacuum({min(free, GIVEN_BACK)})").fetchall()


def rebuild_some(db: apsw.Connection, after: int) -> int | None:
    """Index messages after a key even if others are missing or damaged; return where to continue."""
    some = _some(db, after, stop_at_damage=False)
    if some.words:
        _add(db, some.words)
    return some.last if some.more else None


def _some(db: apsw.Connection, after: int, *, stop_at_damage: bool) -> _Some:
    count, size, last, words = 0, 0, after, list[tuple[int, str]]()
    for key, *columns in db.execute(SQL["after_index"], {"after": after}):
        row = entry_row(columns)
        if row.damaged and stop_at_damage:
            break
        count, size, last = count + 1, size + len(row.body), key
        if row.kind == MESSAGE:
            words.append((key, entry_text(row.kind, row.body)))
        is_full = count >= STEP or size > STEP_BYTES
        if is_full and words:  # a step without a message would start at the same place again
            return _Some(count, last, words, more=True)
    return _Some(count, last, words, more=False)


def _add(db: apsw.Connection, words: Sequence[tuple[int, str]]) -> None:
    """Add the words of messages that still exist and are still missing.

    Use one statement per message: INSERT ... SELECT opens a savepoint, at which FTS5 flushes its words.
    """
    which = {"after": newest_indexed(db), "last": words[-1][0]}
    there = {key for (key,) in db.execute(SQL["messages_after_index"], which)}
    db.executemany(SQL["add_words"], [one for one in words if one[0] in there])


def search(
    db: apsw.Connection,
    tenant: str,
    words: Sequence[str],
    user: str | None,
    session: str | None,
    before: int | None,
    limit: int,
) -> list[Hit]:
    """Return the entries that contain all the words, newest first, starting after a mark."""
    if limit < 1 or not words or not all(_WORD(word) for word in words):
        return []
    check_lists(db)  # hits are filtered by tenant and user: the rows of sessions must be sound
    if not words_are_indexed(db):
        raise StoreDamaged(_INDEX_IS_DAMAGED)
    which: dict[str, Any] = {"tenant": tenant, "user": user, "session": session, "before": before}
    hits = list[Hit]()
    for hit in _scanned(db, frozenset(words), which):
        hits.append(hit)
        if len(hits) == limit:
            return hits
    least, most = _span(db, which)
    which |= {"words": " ".join(f'"{word}"' for word in words), "limit": limit - len(hits)}
    which |= {"least": least, "most": most if before is None else min(most, before - 1)}
    return hits + [_hit(*columns) for columns in db.execute(SQL["search"], which)]


def _span(db: apsw.Connection, which: dict[str, Any]) -> tuple[int, int]:
    """Return the first and the last key that a hit can have, or all keys if that is uncertain or takes long.

    The index starts reading there, so an old session is searched without reading what came after it.
    """
    if which["session"] is not None:
        keys = [key for (key,) in db.execute(SQL["session_to_search"], which)]
    elif which["user"] is not None:
        keys = [key for (key,) in db.execute(SQL["sessions_to_search"], which | {"most": _MOST_SESSIONS + 1})]
    else:
        keys = []
    if 0 < len(keys) <= _MOST_SESSIONS:
        ((first, last, are_there),) = db.execute(SQL["span_of_sessions"], {"keys": json.dumps(keys)})
        if first is not None and are_there:
            return first, last
    return 0, _LAST_KEY


def _scanned(db: apsw.Connection, words: frozenset[str], which: dict[str, Any]) -> Iterator[Hit]:
    """Yield hits that are missing in the index, and all damaged entries, newest first."""
    after = newest_indexed(db)
    ((count,),) = db.execute(SQL["count_after_index"], {"after": after, "limit": -1})
    _check_complete(db, after, _newest_key(db, after), count)
    if not count:
        return
    for columns in db.execute(SQL["search_after_index"], which | {"after": after}):
        row = entry_row(columns[2:])
        if row.damaged or words.issubset(entry_words(row.kind, row.body)):
            yield _hit(*columns)


def _hit(mark: int, session: str | None, *columns: Any) -> Hit:
    row = entry_row(columns) if session is not None else unreadable_row(0, 0)
    return Hit(session=session or "", row=row, mark=mark)


def _newest_key(db: apsw.Connection, otherwise: int) -> int:
    """Return the highest key that was ever assigned to an entry."""
    for (key,) in db.execute(SQL["last_key"]):
        return int(key)
    return otherwise


def _check_complete(db: apsw.Connection, after: int, last: int, count: int) -> None:
    """Raise `StoreDamaged` if entries between two keys are missing.

    A gap usually comes from a removed session; then every entry that the sessions promise still exists.
    """
    if last - after != count and not entries_are_there(db):
        raise StoreDamaged("entries that were not indexed are missing; run `turnstate verify`")


# A search uses the index of words only if all of it can be found.


@once
def entries_are_there(db: apsw.Connection) -> bool:
    """Return True if the table has as many entries as all sessions promise together."""
    ((promised, there),) = db.execute(SQL["all_entries"])
    return bool(promised == there)


@once
def words_are_indexed(db: apsw.Connection) -> bool:
    """Return True if every page of the search index can be found by its first word."""
    known = set(db.execute(SQL["pages_of_words"]))
    for (structure,) in db.execute(SQL["structure_of_words"]):
        try:
            segments = _segments(structure)
        except IndexError:
            return False
        for segment, first, last in segments:
            missing = (page for page in range(first + 1, last + 1) if (segment, page) not in known)
            if any(_begins_a_word(db, segment, page) for page in missing):
                return False
    return True  # without a structure record SQLite itself refuses to search


def _begins_a_word(db: apsw.Connection, segment: int, page: int) -> bool:
    """Return True if a page of the search index does more than continue a long list.

    Its third and fourth bytes are the length of the lists, after which the offsets of words follow.
    """
    for (block,) in db.execute(SQL["page_of_words"], {"id": (segment << 37) + page}):
        return int.from_bytes(block[2:4], "big") < len(block)
    return True


def _segments(structure: bytes) -> list[tuple[int, int, int]]:
    """Return the segments of the search index: number, first and last page of each.

    An FTS5 structure record begins with a four-byte number and, if rows can be deleted, a four-byte marker.
    Variable-length integers follow: the numbers of levels, segments and writes; for each level the numbers of
    merges and segments; for each segment its number, its first and last page, and five integers for deletion.
    """
    numbers, found = _numbers(structure[8:]), list[tuple[int, int, int]]()
    if structure[4:8] != _ROWS_CAN_BE_DELETED:
        raise StoreDamaged("the search index has an unknown structure; run `turnstate verify --repair`")
    place, levels = 3, numbers[0]
    for _ in range(levels):
        end = place + 2 + 8 * numbers[place + 1]
        found += [(numbers[at], numbers[at + 1], numbers[at + 2]) for at in range(place + 2, end, 8)]
        place = end
    return found


def _numbers(data: bytes) -> list[int]:
    """Decode SQLite's variable-length integers: seven bits per byte, and eight in the ninth byte."""
    found, value, size = list[int](), 0, 0
    for byte in data:
        size += 1
        if size == 9:
            found.append(value << 8 | byte)
        elif byte & 0x80:
            value = value << 7 | byte & 0x7F
            continue
        else:
            found.append(value << 7 | byte)
        value = size = 0
    return found
