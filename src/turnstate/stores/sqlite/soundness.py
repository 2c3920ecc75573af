"""Checks that indexes lead to every row, once per connection, before "not found" is believed.

An empty page of an index is valid to SQLite, which then finds fewer rows without an error. Every read of a
session is compared with what its row promises (see `log`). But nothing promises which sessions exist,
which parcels wait and which entries contain a word, so these indexes are compared with their tables when they
are first used. In a large table, rows are only counted, since looking up each of them would take too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

import apsw

from ...errors import StoreDamaged
from .queries import SQL

MAX_COMPARED = 10_000
"""Up to this many sessions, each is looked up in every index (11 ms); more are only counted."""

_INDEXES = ("sqlite_autoindex_session_1", "session_by_creation", "session_by_user")
_OF_AN_INDEX = re.compile(
    r"(?:row \d+ (?:missing|values differ) from index|wrong # of entries in index) (\w+)"
)
_ROWS_CAN_BE_DELETED = b"\xff\0\0\1"

Check = Callable[[apsw.Connection], bool]


def _once(check: Check) -> Check:
    """Remember the answer for as long as the connection is open."""
    known: WeakKeyDictionary[apsw.Connection, bool] = WeakKeyDictionary()

    @wraps(check)
    def remembered(db: apsw.Connection) -> bool:
        if (answer := known.get(db)) is None:
            answer = known[db] = check(db)
        return answer

    return remembered


@_once
def ids_are_indexed(db: apsw.Connection) -> bool:
    """Return True if the index of ids has as many sessions as the table."""
    ((table, by_id, _, _),) = db.execute(SQL["session_counts"])
    return bool(table == by_id)


@_once
def list_is_indexed(db: apsw.Connection) -> bool:
    """Return True if the indexes of sessions are complete, False if only a table scan is.

    If an index has fewer rows than the table, it lost some, and the table is right. If both have the same
    number of rows but they differ, either may be wrong: raise `StoreDamaged`.
    """
    ((table, *indexes),) = db.execute(SQL["session_counts"])
    short = {index for index, count in zip(_INDEXES, indexes, strict=True) if count < table}
    unclear = table < max(indexes)
    if table <= MAX_COMPARED:
        lines = [
            line for (line,) in db.execute("PRAGMA integrity_check('session')") if _concerns_a_list(line)
        ]
        found = [_OF_AN_INDEX.match(line) for line in lines]
        unclear |= not all(match and match[1] in short for match in found)
    if unclear:
        raise StoreDamaged("the table of sessions is damaged; run `turnstate verify`")
    return not short


def _concerns_a_list(line: str) -> bool:
    return line != "ok" and not line.endswith(" session_by_expiry")


@_once
def expiry_is_indexed(db: apsw.Connection) -> bool:
    """Return True if the index of expiry times has all sessions that expire."""
    ((table, indexed),) = db.execute(SQL["expiry_counts"])
    return bool(table == indexed)


@_once
def parcels_are_indexed(db: apsw.Connection) -> bool:
    """Return True if the indexes of the outbox have as many parcels as its table."""
    ((table, by_due, by_session),) = db.execute(SQL["outbox_counts"])
    if table < max(by_due, by_session):
        raise StoreDamaged("parcels are missing from the outbox; run `turnstate verify`")
    return bool(table == by_due == by_session)


@_once
def entries_are_there(db: apsw.Connection) -> bool:
    """Return True if the table has as many entries as all sessions promise together."""
    ((promised, there),) = db.execute(SQL["all_entries"])
    return bool(promised == there)


@_once
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
