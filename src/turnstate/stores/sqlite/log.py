"""The log in SQLite: each function runs inside a transaction of the connection that it is given.

SQLite does not notice every damaged page: an index may silently lead to fewer rows than there are. So
what is read is compared with what the rows of session and branch promise, and anything that is missing is
looked for row by row and by a scan of the table (`rows_around`). An answer is complete, marked as damaged,
or refused with `StoreDamaged`; it is never silently shorter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import apsw
from msgspec import structs

from ...errors import AlreadyExists, NotFound, StoreDamaged
from ..admission import KEY_LIFE, KnownKey, admitted, advanced
from ..values import (
    MESSAGE,
    Address,
    BranchRow,
    Change,
    Fork,
    Hit,
    Position,
    Receipt,
    Record,
    Row,
    SessionRow,
    Span,
)
from .faults import UNREADABLE
from .queries import SQL
from .rows import (
    SessionPlace,
    advance_columns,
    branch_row,
    entry_columns,
    entry_row,
    marks,
    session_place,
    session_row,
    unreadable_row,
)
from .salvage import promised, rows_around
from .soundness import list_is_indexed, words_are_indexed

__all__ = ["add_entries", "branches", "commit", "find", "newest", "read", "search"]

STEP = 8
"""Entries that are read at a time when a path is walked back from its head."""

_WORD = re.compile("[a-z0-9_\x80-\U0010ffff]+").fullmatch
"""Matches what is one token to the index; anything else would be a query of several tokens, or invalid."""


def add_entries(db: apsw.Connection, key: int, head: Position, total: int, records: Sequence[Record]) -> None:
    """Write entries after a position, and their words into the index."""
    seq = head.seq
    for record in records:
        seq, total = seq + 1, total + record.tokens
        columns = entry_columns(key, head.branch, seq, total, record)
        try:
            db.execute(SQL["add_entry"], columns)
        except apsw.ConstraintError:
            raise AlreadyExists(f"the session already has an entry {record.id}") from None
        if record.words:
            db.execute(SQL["add_words"], {"key": db.last_insert_rowid(), "words": " ".join(record.words)})


def commit(db: apsw.Connection, change: Change) -> Receipt:
    """Apply a change as a whole, or raise the first check that fails."""
    key, row = session_row(db, change.at)
    if repeated := admitted(row, change, _known_key(db, key, change)):
        return repeated
    head, total = _target(db, key, row, change)
    add_entries(db, key, head, total, change.records)
    after = advanced(row, change, branch=head.branch, seq=head.seq, total=total)
    if head.branch != row.branch:
        db.execute(SQL["leave_branch"], {"key": key, "branch": row.branch, "seq": row.seq})
    db.execute(SQL["advance_session"], advance_columns(key, after, marks(change.records, after=head.seq)))
    for parcel in change.parcels:
        db.execute(SQL["add_parcel"], structs.asdict(parcel))
    receipt = Receipt(
        epoch=after.epoch, version=after.version, branch=after.branch, first=head.seq + 1, last=after.seq
    )
    if change.key:
        _keep_key(db, key, change, receipt)
    return receipt


def _known_key(db: apsw.Connection, key: int, change: Change) -> KnownKey | None:
    if change.key is None:
        return None
    for found in db.execute(SQL["known_key"], {"key": key, "name": change.key.name}):
        digest, epoch, version, branch, first, last, created = found
        receipt = Receipt(epoch=epoch, version=version, branch=branch, first=first, last=last)
        return KnownKey(digest, receipt, created)
    return None


def _keep_key(db: apsw.Connection, key: int, change: Change, receipt: Receipt) -> None:
    """Store a key and delete a few expired ones, so that every append does its share of the cleanup."""
    if change.key is None:
        return
    columns = structs.asdict(receipt) | change.key._asdict() | {"key": key, "created": change.now}
    db.execute(SQL["keep_key"], columns)
    db.execute(SQL["forget_keys"], {"before": change.now - KEY_LIFE})


def _target(db: apsw.Connection, key: int, row: SessionRow, change: Change) -> tuple[Position, int]:
    """Return the position after which records are written, and the sum of tokens up to there."""
    if change.fork is not None:
        return _forked(db, key, row, change.fork, change.now)
    if change.select is None or change.select == row.branch:
        return row.head, row.total
    head = Position(change.select, _tip(db, key, row, change.select))
    return head, _total(db, key, row, head)


def _forked(db: apsw.Connection, key: int, row: SessionRow, fork: Fork, now: int) -> tuple[Position, int]:
    if fork.parent is not None and not 0 <= fork.seq <= _tip(db, key, row, fork.parent):
        raise NotFound(f"branch {fork.parent} of session {row.id} has no entry {fork.seq}")
    last = _last_branch(db, key, row.branch)
    seq = fork.seq if fork.parent is not None else 0
    total = _total(db, key, row, Position(fork.parent, seq)) if fork.parent is not None else 0
    columns = {"key": key, "id": last + 1, "parent": fork.parent, "fork_seq": seq, "created": now}
    made = {"name": fork.name, "operation": fork.operation, "former": row.branch}
    db.execute(SQL["add_branch"], columns | made)
    return Position(last + 1, seq), total


def _last_branch(db: apsw.Connection, key: int, head: int) -> int:
    """Return the number of the newest branch; raise `StoreDamaged` if there are entries of a newer one."""
    ((last,),) = db.execute(SQL["last_branch"], {"key": key})
    if last is None or last < max(head, _value(db, "last_branch_of_entries", key=key) or 0):
        raise StoreDamaged("branches of a session are missing; run `turnstate verify`")
    return int(last)


def _tip(db: apsw.Connection, key: int, row: SessionRow, branch: int) -> int:
    """Return the last sequence number of a branch; without entries that is the number of its fork."""
    for _, _, tip in db.execute(SQL["branch"], {"key": key, "branch": branch}):
        seq = row.seq if branch == row.branch else int(tip)
        if _value(db, "goes_beyond", key=key, branch=branch, seq=seq):
            raise _longer_than_promised(branch, seq)
        return seq
    raise NotFound(f"session {row.id} has no branch {branch}")


def _total(db: apsw.Connection, key: int, row: SessionRow, at: Position) -> int:
    """Return the sum of tokens at a position of a path, which may be on an earlier branch."""
    branch: int | None = at.branch
    while branch is not None and at.seq > 0:
        parent, fork = _origin(db, key, branch)
        if at.seq > fork:
            for (total,) in db.execute(SQL["total"], {"key": key, "branch": branch, "seq": at.seq}):
                return int(total)
            for found in rows_around(db, SessionPlace(key, *row.head), Span(branch, at.seq, at.seq)):
                if not found.damaged:
                    return found.total
            raise StoreDamaged(f"entry {at.seq} of branch {branch} cannot be read; run `turnstate verify`")
        branch = parent
    return 0


def _value(db: apsw.Connection, name: str, **which: int | str) -> Any:
    """Return the single value of a query, or None if what it reads is damaged."""
    with suppress(*UNREADABLE):
        for (value,) in db.execute(SQL[name], which):
            return value
    return None


def _origin(db: apsw.Connection, key: int, branch: int) -> tuple[int | None, int]:
    for parent, fork, _ in db.execute(SQL["branch"], {"key": key, "branch": branch}):
        if parent is None or 0 < parent < branch:
            return parent, int(fork)
    raise StoreDamaged(f"branch {branch} of a session has an invalid parent; run `turnstate verify`")


def read(
    db: apsw.Connection,
    at: Address,
    span: Span,
    limit: int | None,
    *,
    newest: bool,
    kinds: Sequence[str] | None,
) -> list[Row]:
    """Return the entries of a span in order; with a limit the first ones, or the newest."""
    place = session_place(db, at)
    reaches_head = span.branch == place.branch and span.last >= place.seq
    if reaches_head and _value(db, "goes_beyond", **place._asdict()):
        raise _longer_than_promised(place.branch, place.seq)
    if kinds is not None:
        return _read_kinds(db, place, span, set(kinds) - {MESSAGE}, limit=limit, newest=newest)
    return _read_span(db, place, span, limit=limit, newest=newest)


def _read_kinds(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    kinds: Collection[str],
    *,
    limit: int | None,
    newest: bool,
) -> list[Row]:
    """Return entries by the index of kinds or, if that or one of them is damaged, by reading the span.

    Then damaged entries are among them, since their kind may be unknown.
    """
    if _value(db, "marks", key=place.key):
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
    db: apsw.Connection, place: SessionPlace, span: Span, *, limit: int | None, newest: bool
) -> list[Row]:
    which = {"key": place.key, **span._asdict(), "limit": -1 if limit is None else limit}
    sql = SQL["read_newest" if newest else "read"]
    try:
        rows = [entry_row(columns) for columns in db.execute(sql, which)]
    except UNREADABLE:
        return rows_around(db, place, span, limit=limit, newest=newest)
    if _is_incomplete(db, place, span, limit, rows, newest=newest):
        return rows_around(db, place, span, limit=limit, newest=newest)
    return rows[::-1] if newest else rows


def _is_incomplete(
    db: apsw.Connection,
    place: SessionPlace,
    span: Span,
    limit: int | None,
    rows: Sequence[Row],
    *,
    newest: bool,
) -> bool:
    """Return True if entries are missing that the session promises, or some are damaged."""
    seqs = [row.seq for row in rows]
    gaps = bool(seqs) and abs(seqs[-1] - seqs[0]) + 1 != len(seqs)
    if gaps or any(row.damaged for row in rows):
        return True
    if _fills(span, seqs, limit, newest=newest):
        return False
    there = promised(db, place, span)
    if seqs and max(seqs) > there.last:
        raise _longer_than_promised(span.branch, there.last)
    return not _fills(there, seqs, limit, newest=newest)


def _fills(span: Span, seqs: Sequence[int], limit: int | None, *, newest: bool) -> bool:
    """Return True if numbers without gaps cover a span, or as much of one of its ends as the limit allows."""
    size = max(0, span.last - span.first + 1)
    wanted = size if limit is None else min(limit, size)
    return len(seqs) == wanted and (not wanted or seqs[0] == (span.last if newest else span.first))


def _longer_than_promised(branch: int, seq: int) -> StoreDamaged:
    return StoreDamaged(
        f"branch {branch} should end at entry {seq}, but there are entries after it; run `turnstate verify`"
    )


def find(db: apsw.Connection, at: Address, ids: Sequence[str]) -> list[Row]:
    """Return the entries that have one of these ids, in the order of the log."""
    key, found = session_place(db, at).key, list[Row]()
    for id in set(ids):
        with suppress(*UNREADABLE):  # reading its span reports it
            found += [entry_row(columns) for columns in db.execute(SQL["find"], {"key": key, "id": id})]
    if missing := set(ids) - {row.id for row in found if not row.damaged}:
        found = [row for row in found if row.id not in missing] + _find_by_scan(db, key, missing, found)
    return sorted(found, key=lambda row: (row.branch, row.seq))


def _find_by_scan(db: apsw.Connection, key: int, missing: Collection[str], known: Sequence[Row]) -> list[Row]:
    """Scan the table for entries if the index of ids does not lead to all of them."""
    if _value(db, "ids_are_indexed", key=key):
        return [row for row in known if row.id in missing]
    found = list[Row]()
    for id in missing:
        with suppress(*UNREADABLE):
            columns = db.execute(SQL["scan_for_id"], {"key": key, "id": id})
            found += [structs.replace(entry_row(one), recovered=True) for one in columns]
    return found


def newest(db: apsw.Connection, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
    """Return the newest entry of each kind on a path, whose newest span comes first."""
    place = session_place(db, at)
    # The index of kinds does not hold messages. It is trusted only if it has all that the session promises.
    is_indexed = _value(db, "marks", key=place.key)
    found = dict[str, Row]()
    for kind in kinds:
        newest_of = _newest_by_index if is_indexed and kind != MESSAGE else _newest_by_reading
        if row := newest_of(db, place, spans, kind):
            found[kind] = row
    return found


def _newest_by_index(
    db: apsw.Connection, place: SessionPlace, spans: Sequence[Span], kind: str
) -> Row | None:
    which = {"key": place.key, "kind": kind}
    found = (db.execute(SQL["newest"], which | span._asdict()) for span in spans)
    try:
        return next((entry_row(columns) for cursor in found for columns in cursor), None)
    except UNREADABLE:
        pass
    for span in spans:  # its row cannot be read, and an older one must not take its place
        seq = _value(db, "newest_place", kind=kind, key=place.key, **span._asdict())
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


def branches(db: apsw.Connection, at: Address) -> list[BranchRow]:
    """Return all branches of a session in the order of their creation."""
    place, found = session_place(db, at), list[BranchRow]()
    last = _last_branch(db, place.key, place.branch)
    for *columns, tip in db.execute(SQL["branches"], {"key": place.key}):
        branch = branch_row(columns)
        end = place.seq if branch.id == place.branch else tip
        first = _value(db, "first_entry", key=place.key, branch=branch.id)
        if first != branch.fork_seq + 1 and end > branch.fork_seq:
            first = _value(db, "scan_for_first", key=place.key, branch=branch.id)
        if first not in (branch.fork_seq + 1, None):
            raise StoreDamaged(
                f"branch {branch.id} of session {at.session} begins at entry {first}, "
                f"but its row says after entry {branch.fork_seq}; run `turnstate verify`"
            )
        found.append(branch)
    if [branch.id for branch in found] != list(range(1, last + 1)):
        raise StoreDamaged(f"branches of session {at.session} are missing; run `turnstate verify`")
    return found


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
    if not words or not all(_WORD(word) for word in words):
        return []
    list_is_indexed(db)  # hits are filtered by tenant: the rows of sessions must be sound
    if not words_are_indexed(db):
        raise StoreDamaged("the search index is damaged; run `turnstate verify --repair`")
    which = {
        "words": " ".join(f'"{word}"' for word in words),
        "tenant": tenant,
        "user": user,
        "session": session,
        "before": before,
        "limit": limit,
    }
    return [
        Hit(
            session=id or "",
            row=entry_row(columns) if id is not None else unreadable_row(0, 0),
            mark=mark,
        )
        for mark, id, *columns in db.execute(SQL["search"], which)
    ]
