"""Reading around damage: what can still be read is given, and the rest marked as damaged.

A span is read in one scan until that fails. Then it is read again, entry by entry as the index of
places tells; where that index is broken, by going through the whole table; and where that is broken,
too, by trying every number that the session may have. It is slow, and only for damaged files.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from ..values import Row, Span
from .faults import UNREADABLE
from .queries import query
from .rows import entry_row, unreadable_row

__all__ = ["each_row", "rows_around"]

MOST_GUESSED = 10_000
"""Numbers that are tried where nothing tells which there are."""


def rows_around(
    db: apsw.Connection, key: int, span: Span, *, limit: int | None = None, newest: bool = False
) -> list[Row]:
    """Give a run of entries in order; those that cannot be read are marked as damaged."""
    rows = sorted(each_row(db, key, span), key=lambda row: row.seq)
    if limit is None:
        return rows
    return rows[max(0, len(rows) - limit) :] if newest else rows[:limit]


def each_row(db: apsw.Connection, key: int, span: Span) -> Iterator[Row]:
    """Give the entries of a run one by one, in whatever order they can be read."""
    which = {"key": key, **span._asdict()}
    try:
        seqs = [seq for (seq,) in db.execute(query("places"), which)]
    except UNREADABLE:
        yield from _rows_of_table(db, which) or _rows_by_number(db, key, span)
        return
    for seq in seqs:
        yield from _row(db, key, span.branch, seq)


def _rows_of_table(db: apsw.Connection, which: dict[str, int]) -> list[Row]:
    try:
        return [entry_row(columns) for columns in db.execute(query("scan"), which)]
    except UNREADABLE:
        return []


def _rows_by_number(db: apsw.Connection, key: int, span: Span) -> list[Row]:
    ((_, last, *_),) = db.execute(query("head"), {"key": key})
    numbers = range(max(1, span.first), min(span.last, last, span.first + MOST_GUESSED) + 1)
    return [row for seq in numbers for row in _row(db, key, span.branch, seq)]


def _row(db: apsw.Connection, key: int, branch: int, seq: int) -> list[Row]:
    """Look one entry up: it is there, or not, or it cannot be read."""
    which = {"key": key, "branch": branch, "first": seq, "last": seq, "limit": 1}
    try:
        return [entry_row(columns) for columns in db.execute(query("read"), which)]
    except UNREADABLE:
        return [unreadable_row(branch, seq)]
