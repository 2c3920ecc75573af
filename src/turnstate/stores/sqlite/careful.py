"""Reading around damage: what can still be read is returned, and the rest marked as damaged.

The entries of a branch are numbered without gaps, from its fork to its tip, so a read knows how many there
must be. If a span comes out short or cannot be read at once, it is read again entry by entry. What that
does not find, or finds with another checksum, is looked for in the whole table, whatever the indexes say,
and marked as recovered; what is not there either is marked as damaged. It is slow, and only for damaged
files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import apsw
from msgspec import structs

from ...errors import StoreDamaged
from ..values import Row, Span
from .faults import UNREADABLE
from .queries import query
from .rows import Place, entry_row, unreadable_row

__all__ = ["promised", "rows_around"]

MOST_LOST = 100_000
"""Entries of a span that may be missing: a number above is a damaged number."""


def promised(db: apsw.Connection, place: Place, span: Span) -> Span:
    """Return the part of a span that must have entries, by what the rows of session and branch say."""
    found = list(db.execute(query("branch"), {"key": place.key, "branch": span.branch}))
    if not found and span.branch != place.branch:
        return Span(span.branch, 1, 0)
    fork, tip = found[0][1:] if found else (span.first - 1, place.seq)
    if span.branch == place.branch:
        tip = place.seq
    return Span(span.branch, max(span.first, fork + 1), min(span.last, tip))


def rows_around(
    db: apsw.Connection, place: Place, span: Span, *, limit: int | None = None, newest: bool = False
) -> list[Row]:
    """Return the entries that a span promises, in order; those that cannot be read are marked as damaged."""
    span = _limited(promised(db, place, span), limit, newest=newest)
    found = _rows_by_index(db, place.key, span)
    if len(found) < span.last - span.first + 1:
        scanned = _rows_of_table(db, place.key, span)
        found |= {
            seq: structs.replace(row, recovered=True) for seq, row in scanned.items() if seq not in found
        }
    if span.last - span.first + 1 - len(found) > MOST_LOST:
        raise StoreDamaged(
            f"a session says that it has {span.last:,} entries on branch {span.branch}, "
            f"and {len(found):,} can be read; run `turnstate verify`"
        )
    return [found.get(seq) or unreadable_row(span.branch, seq) for seq in range(span.first, span.last + 1)]


def _limited(span: Span, limit: int | None, *, newest: bool) -> Span:
    if limit is None:
        return span
    if newest:
        return Span(span.branch, max(span.first, span.last - limit + 1), span.last)
    return Span(span.branch, span.first, min(span.last, span.first + limit - 1))


def _rows_by_index(db: apsw.Connection, key: int, span: Span) -> dict[int, Row]:
    """Return the entries that the index of places leads to, but for those that it confuses with others."""
    which = {"key": key, **span._asdict(), "limit": -1}
    found = dict[int, Row]()
    try:
        for columns in db.execute(query("read"), which):
            _take(db, key, entry_row(columns), found)
    except UNREADABLE:
        for seq in range(span.first, min(span.last, span.first + MOST_LOST) + 1):
            with suppress(*UNREADABLE):
                for columns in db.execute(query("read"), {**which, "first": seq, "last": seq}):
                    _take(db, key, entry_row(columns), found)
    return found


def _take(db: apsw.Connection, key: int, row: Row, found: dict[int, Row]) -> None:
    """Keep an entry, if it is sound or at least its own row says that it stands at its place."""
    here = {"key": key, "branch": row.branch, "seq": row.seq}
    if not row.damaged or list(db.execute(query("own_place"), here)) == [(key, row.branch, row.seq)]:
        found[row.seq] = row


def _rows_of_table(db: apsw.Connection, key: int, span: Span) -> dict[int, Row]:
    """Scan the table from its beginning, and if that breaks also from its end."""
    which: dict[str, Any] = {"key": key, **span._asdict()}
    found = dict[int, Row]()
    for name in ("scan", "scan_backwards"):
        with suppress(*UNREADABLE):
            for columns in db.execute(query(name), which):
                row = entry_row(columns)
                found[row.seq] = row
            break
    return found
