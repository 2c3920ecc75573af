"""Whether indexes lead to everything: asked once of each connection, before an answer of "none" is believed.

An empty page of an index is sound to SQLite, which then finds less and says nothing. What a session's own
rows promise is compared with every read (see `careful`). Which sessions there are, which parcels wait and
where words stand is promised nowhere, so an index is compared with its table when it is first relied on.
The larger the table, the less of it is compared: to count is cheap, to look up each row is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

import apsw

from ...errors import StoreDamaged
from .queries import SQL

__all__ = [
    "expiry_is_indexed",
    "ids_are_indexed",
    "list_is_indexed",
    "parcels_are_indexed",
    "words_are_indexed",
]

MOST_COMPARED = 10_000
"""Sessions up to which each is looked up in each index: 11 ms; beyond that they are counted."""

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
    """Return whether the index of ids has as many sessions as their table."""
    ((table, by_id, _, _),) = db.execute(SQL["session_counts"])
    return bool(table == by_id)


@_once
def list_is_indexed(db: apsw.Connection) -> bool:
    """Return whether sessions can be listed by their indexes; raise `StoreDamaged` if not even by a scan.

    An index with fewer rows than the table lost some, and the table is right. Where as many rows differ,
    either may be.
    """
    ((table, *indexes),) = db.execute(SQL["session_counts"])
    short = {index for index, count in zip(_INDEXES, indexes, strict=True) if count < table}
    unclear = table < max(indexes)
    if table <= MOST_COMPARED:
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
    """Return whether the index of times has all sessions that end by themselves."""
    ((table, indexed),) = db.execute(SQL["expiry_counts"])
    return bool(table == indexed)


@_once
def parcels_are_indexed(db: apsw.Connection) -> bool:
    """Return whether the indexes of the outbox have as many parcels as it has."""
    ((table, by_due, by_session),) = db.execute(SQL["outbox_counts"])
    if table < max(by_due, by_session):
        raise StoreDamaged("parcels are missing from the outbox; run `turnstate verify`")
    return bool(table == by_due == by_session)


@_once
def words_are_indexed(db: apsw.Connection) -> bool:
    """Return whether every page of the index for search can be found by its first word."""
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
    return True  # without a structure SQLite itself refuses to search


def _begins_a_word(db: apsw.Connection, segment: int, page: int) -> bool:
    """Return whether a page of the index for search is more than the continuation of a long list.

    Its third and fourth byte are the length of the lists; the places of words stand behind them.
    """
    for (block,) in db.execute(SQL["page_of_words"], {"id": (segment << 37) + page}):
        return int.from_bytes(block[2:4], "big") < len(block)
    return True


def _segments(structure: bytes) -> list[tuple[int, int, int]]:
    """Return the segments of the index for search: number, first and last page of each.

    A structure begins with a number of four bytes and, if rows can be deleted, a mark of four more. All
    else are numbers: of levels, segments and writes; for each level, of merges and segments; for each
    segment its number, its pages, and five that only deleting needs.
    """
    numbers, found = _numbers(structure[8:]), list[tuple[int, int, int]]()
    if structure[4:8] != _ROWS_CAN_BE_DELETED:
        raise StoreDamaged("the index for search has another structure; run `turnstate verify --repair`")
    place, levels = 3, numbers[0]
    for _ in range(levels):
        end = place + 2 + 8 * numbers[place + 1]
        found += [(numbers[at], numbers[at + 1], numbers[at + 2]) for at in range(place + 2, end, 8)]
        place = end
    return found


def _numbers(data: bytes) -> list[int]:
    """Decode SQLite's numbers of variable length: seven bits a byte, and eight in a ninth."""
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
