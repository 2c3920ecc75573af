"""Reading the log in SQLite: each function runs inside a transaction of the connection that it is given.

SQLite does not notice every damaged page: an index may silently lead to fewer rows than there are. So every
result is compared with what the rows of session and branch promise, and missing entries are looked up one by
one and then by a table scan (`rows_around`). A result is complete, marked as damaged, or refused with
`StoreDamaged`; it is never silently shorter.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

import apsw
from msgspec import structs

from ...errors import StoreDamaged
from ..values import (
    MESSAGE,
    Address,
    BranchRow,
    Row,
    SessionRow,
    Span,
)
from .faults import UNREADABLE
from .queries import SHORT, SQL
from .readers import TooMuchToRead
from .rows import (
    SessionPlace,
    branch_row,
    entry_row,
    last_branch,
    longer_than_promised,
    session_row,
    single_value,
    stored_id,
)
from .salvage import promised, rows_around

T = TypeVar("T")

BESIDE_BODY = 64
"""Bytes of an entry besides its stored body; its id becomes part of the body again when it is read."""

_BODY = 5  # index among the columns of an entry
_NO_END = (1 << 63) - 1

STEP = 8
"""Entries to read at a time when walking a path back from its head."""

MOST_CHECKED = 10_000
"""Sessions that a connection remembers as checked, in half a megabyte."""

_checked: WeakKeyDictionary[apsw.Connection, set[int]] = WeakKeyDictionary()
"""The sessions whose part of the index of kinds was complete when a connection first used it."""


class LogSnapshot:
    """The log of one session in a reader's snapshot, for a job of several reads; its methods never wait.

    With ``most``, a read of more than that many bytes raises `TooMuchToRead` instead.
    """

    def __init__(self, db: apsw.Connection, place: SessionPlace, most: int | None = None) -> None:
        self._db, self._place, self._most = db, place, most

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span in order; with a limit, only the first ones or the newest."""
        if self._most is not None:
            count = span.last - span.first + 1 if limit is None else limit
            if count * BESIDE_BODY > self._most:
                raise TooMuchToRead
        return read(self._db, self._place, span, limit, newest=newest, kinds=kinds, most=self._most)

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids, in the order of the log."""
        return find(self._db, self._place, ids)

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
        return newest(self._db, self._place, spans, kinds)

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        return branches(self._db, at, self._place)


def at_once(
    db: apsw.Connection,
    at: Address,
    job: Callable[[SessionRow, LogSnapshot], Awaitable[T]],
    most: int | None = None,
) -> T:
    """Run a job on a session and its log, and return its result.

    ``most`` limits `LogSnapshot`; with it, a job that would wait for a thread raises `TooMuchToRead`, too.
    """
    key, row = session_row(db, at)
    step = job(row, LogSnapshot(db, SessionPlace(key, row.branch, row.seq), most)).__await__()
    try:
        next(step)
    except StopIteration as done:
        result: T = done.value
        return result
    if most is not None:
        raise TooMuchToRead
    raise RuntimeError("a job that reads at once cannot wait for anything else")


def read(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    limit: int | None,
    *,
    newest: bool,
    kinds: Sequence[str] | None,
    most: int | None = None,
) -> list[Row]:
    """Return the entries of a span in order; with a limit, only the first ones or the newest."""
    reaches_head = span.branch == place.branch and span.last >= place.seq
    sees_end = kinds is None and (newest or limit is None)
    if reaches_head and not sees_end:
        _check_end(db, place)
    if kinds is not None:
        return _read_kinds(db, place, span, set(kinds) - {MESSAGE}, limit=limit, newest=newest)
    beyond = reaches_head and sees_end
    return _read_span(db, place, span, limit=limit, newest=newest, beyond=beyond, most=most)


def _check_end(db: apsw.Connection, place: SessionPlace) -> None:
    """Raise `StoreDamaged` if there are entries after the head."""
    if single_value(db, "goes_beyond", **place._asdict()):
        raise longer_than_promised(place.branch, place.seq)


def _read_kinds(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    kinds: Collection[str],
    *,
    limit: int | None,
    newest: bool,
) -> list[Row]:
    """Return entries by the index of kinds or, if it or one of the entries is damaged, by reading the span.

    In the second case, damaged entries are included, since their kind may be unknown.
    """
    if _kinds_are_indexed(db, place.key):
        listed = json.dumps(sorted(kinds))
        which = {"key": place.key, **span._asdict(), "kinds": listed, "limit": -1 if limit is None else limit}
        with suppress(*UNREADABLE):
            found = db.execute(SQL["read_kinds_newest" if newest else "read_kinds"], which)
            rows = [entry_row(columns) for columns in found]
            if not any(row.damaged for row in rows):
                return rows[::-1] if newest else rows
    rows = _read_span(db, place, span, limit=None, newest=False)
    rows = [row for row in rows if row.damaged or row.kind in kinds]
    if limit is None or limit >= len(rows):
        return rows
    return rows[slice(len(rows) - limit, None) if newest else slice(limit)]


def _read_span(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    *,
    limit: int | None,
    newest: bool,
    beyond: bool = False,
    most: int | None = None,
) -> list[Row]:
    """Read a span; with `beyond` it reaches the head, and the query also looks for entries after that."""
    which = {"key": place.key, **span._asdict(), "limit": -1 if limit is None else limit}
    if beyond:
        which["last"] = _NO_END
    name = "read_newest" if newest else "read"
    try:
        if most is None:
            rows = [entry_row(columns) for columns in db.execute(SQL[name], which)]
        else:
            rows = _short_rows(db.execute(SHORT[name], which | {"most": most}), most)
        if beyond and rows and rows[0 if newest else -1].seq > place.seq:
            raise longer_than_promised(place.branch, place.seq)
        if not _is_incomplete(db, place, span, limit, rows, newest=newest):
            return rows[::-1] if newest else rows
    except UNREADABLE:
        if beyond:
            _check_end(db, place)
    if most is not None:
        raise TooMuchToRead  # finding the missing entries may take a scan of the whole table
    return rows_around(db, place, span, limit=limit, newest=newest)


def _short_rows(found: apsw.Cursor, most: int) -> list[Row]:
    """Return rows, or raise `TooMuchToRead` if they have more than `most` bytes."""
    columns = found.fetchall()
    bodies = [one[_BODY] for one in columns]
    if sum([len(body) + BESIDE_BODY if type(body) is bytes else most + 1 for body in bodies]) > most:
        raise TooMuchToRead
    return [entry_row(one) for one in columns]


def _is_incomplete(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    limit: int | None,
    rows: Sequence[Row],
    *,
    newest: bool,
) -> bool:
    """Return True if entries that the session promises are missing, or some are damaged."""
    seqs = [row.seq for row in rows]
    gaps = bool(seqs) and abs(seqs[-1] - seqs[0]) + 1 != len(seqs)
    if gaps or any(row.damaged for row in rows):
        return True
    if _fills(span, seqs, limit, newest=newest):
        return False
    there = promised(db, place, span)
    if seqs and max(seqs) > there.last:
        raise longer_than_promised(span.branch, there.last)
    return not _fills(there, seqs, limit, newest=newest)


def _fills(span: Span, seqs: Sequence[int], limit: int | None, *, newest: bool) -> bool:
    """Return True if numbers without gaps cover a span, or as much of its start or end as `limit` allows."""
    size = max(0, span.last - span.first + 1)
    wanted = size if limit is None else min(limit, size)
    return len(seqs) == wanted and (not wanted or seqs[0] == (span.last if newest else span.first))


def find(db: apsw.Connection, place: SessionPlace, ids: Sequence[str]) -> list[Row]:
    """Return the entries that have one of these ids, in the order of the log."""
    key, found = place.key, list[Row]()
    for id in set(ids):
        with suppress(*UNREADABLE):  # reading its span reports the damage
            found += [
                entry_row(columns) for columns in db.execute(SQL["find"], {"key": key, "id": stored_id(id)})
            ]
    if missing := set(ids) - {row.id for row in found if not row.damaged}:
        found = [row for row in found if row.id not in missing] + _find_by_scan(db, key, missing, found)
    return sorted(found, key=lambda row: (row.branch, row.seq))


def _find_by_scan(db: apsw.Connection, key: int, missing: Collection[str], known: Sequence[Row]) -> list[Row]:
    """Scan the table for entries if the index of ids does not lead to all of them."""
    if single_value(db, "ids_are_indexed", key=key):
        return [row for row in known if row.id in missing]
    found = list[Row]()
    for id in missing:
        with suppress(*UNREADABLE):
            columns = db.execute(SQL["scan_for_id"], {"key": key, "id": stored_id(id)})
            found += [structs.replace(entry_row(one), recovered=True) for one in columns]
    return found


def newest(
    db: apsw.Connection, place: SessionPlace, spans: Sequence[Span], kinds: Sequence[str]
) -> dict[str, Row]:
    """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
    is_whole, found = _kinds_are_indexed(db, place.key), dict[str, Row]()
    for kind in kinds:
        by_index = is_whole and kind != MESSAGE  # the index does not hold messages
        row = (_newest_by_index if by_index else _newest_by_reading)(db, place, spans, kind)
        if row:
            found[kind] = row
    return found


def _kinds_are_indexed(db: apsw.Connection, key: int) -> bool:
    """Return True if the index of kinds has everything that a session promises; only then it is trusted.

    The check reads the whole part of the index that belongs to the session, so each connection makes it once
    per session. A conversation has a `usage` entry for each reply: with 100,000 messages, the check takes
    three milliseconds, and asking for the newest model 0.04.
    """
    checked = _checked.setdefault(db, set())
    if key in checked:
        return True
    with suppress(*UNREADABLE):
        if single_value(db, "marks", key=key):
            if len(checked) >= MOST_CHECKED:
                checked.clear()
            checked.add(key)
            return True
    return False


def _newest_by_index(
    db: apsw.Connection, place: SessionPlace, spans: Sequence[Span], kind: str
) -> Row | None:
    which = {"key": place.key, "kind": kind}
    found = (db.execute(SQL["newest"], which | span._asdict()) for span in spans)
    try:
        return next((entry_row(columns) for cursor in found for columns in cursor), None)
    except UNREADABLE:
        pass
    for span in spans:  # the row cannot be read, and an older one must not take its place
        seq = single_value(db, "newest_place", kind=kind, key=place.key, **span._asdict())
        if seq is not None:
            (row,) = rows_around(db, place, Span(span.branch, seq, seq))
            return structs.replace(row, kind=kind)
    return _newest_by_reading(db, place, spans, kind)


def _newest_by_reading(
    db: apsw.Connection, place: SessionPlace, spans: Sequence[Span], kind: str
) -> Row | None:
    """Read a path back from its head until an entry of the kind is found."""
    for span in spans:
        last = span.last
        while last >= span.first:
            rows = _read_span(db, place, Span(span.branch, span.first, last), limit=STEP, newest=True)
            for row in reversed(rows):
                if row.kind == kind:
                    return row
            last = rows[0].seq - 1 if rows else span.first - 1
    return None


def branches(db: apsw.Connection, at: Address, place: SessionPlace) -> list[BranchRow]:
    """Return all branches of a session in the order of their creation."""
    found = list[BranchRow]()
    last = last_branch(db, place.key, place.branch)
    for *columns, tip in db.execute(SQL["branches"], {"key": place.key}):
        branch = branch_row(columns)
        end = place.seq if branch.id == place.branch else tip
        first = single_value(db, "first_entry", key=place.key, branch=branch.id)
        if first != branch.fork_seq + 1 and end > branch.fork_seq:
            first = single_value(db, "scan_for_first", key=place.key, branch=branch.id)
        if first not in (branch.fork_seq + 1, None):
            raise StoreDamaged(
                f"branch {branch.id} of session {at.session} begins at entry {first}, "
                f"but its row says after entry {branch.fork_seq}; run `turnstate verify`"
            )
        found.append(branch)
    if [branch.id for branch in found] != list(range(1, last + 1)):
        raise StoreDamaged(f"branches of session {at.session} are missing; run `turnstate verify`")
    return found
