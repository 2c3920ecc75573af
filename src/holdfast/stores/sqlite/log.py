"""The log in SQLite: a change is a few statements inside the writer's transaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import apsw
from msgspec import structs

from ...errors import AlreadyExists, NotFound, StoreDamaged
from ..admission import KEY_LIFE, KnownKey, admitted, advanced
from ..values import (
    MESSAGE,
    Address,
    Branch,
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
from .careful import rows_around
from .faults import UNREADABLE
from .queries import query
from .readers import Readers
from .rows import advance_columns, branch_row, entry_columns, entry_row, session_key, session_row
from .writer import Writer

__all__ = ["SqliteLog", "add_entries"]

_WORD = re.compile("[a-z0-9_\x80-\U0010ffff]+").fullmatch
"""What can be a token of the index; the query of anything else would be several, or broken."""


class SqliteLog:
    """Appends through the writer, reads beside it."""

    _writer: Writer
    _readers: Readers

    async def commit(self, change: Change) -> Receipt:
        """Take a change whole, or raise the first check that fails and take nothing."""
        return await self._writer.run(lambda db: _commit(db, change))

    async def read(
        self, at: Address, span: Span, *, limit: int | None = None, newest: bool = False
    ) -> list[Row]:
        """Give a run of entries in order; with a limit the first ones, or the newest."""
        return await self._readers.run(lambda db: _read(db, at, span, limit, newest))

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Give the entries with these ids, those that there are, in the order of the log."""
        return await self._readers.run(lambda db: _find(db, at, ids))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Give the newest entry of each kind on a path, whose newest span comes first."""
        return await self._readers.run(lambda db: _newest(db, at, spans, kinds))

    async def branches(self, at: Address) -> list[Branch]:
        """Give all branches of a session in the order of their making."""
        return await self._readers.run(lambda db: _branches(db, at))

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Give the entries that hold all the words, newest first, from behind a mark on."""
        return await self._readers.run(lambda db: _search(db, tenant, words, user, before, limit))


def add_entries(
    db: apsw.Connection, key: int, behind: Position, total: int, records: Sequence[Record]
) -> None:
    """Write entries behind a place, and their words into the index."""
    seq = behind.seq
    for record in records:
        seq, total = seq + 1, total + record.tokens
        columns = entry_columns(key, behind.branch, seq, total, record)
        try:
            db.execute(query("add_entry"), columns)
        except apsw.ConstraintError:
            raise AlreadyExists(f"the session holds an entry {record.id} already") from None
        if record.words:
            db.execute(query("add_words"), {"key": db.last_insert_rowid(), "words": " ".join(record.words)})


def _commit(db: apsw.Connection, change: Change) -> Receipt:
    key, row = session_row(db, change.at)
    if repeated := admitted(row, change, _known_key(db, key, change)):
        return repeated
    head, total = _target(db, key, row, change)
    add_entries(db, key, head, total, change.records)
    after = advanced(row, change, branch=head.branch, seq=head.seq, total=total)
    db.execute(query("advance_session"), advance_columns(key, after))
    for parcel in change.parcels:
        db.execute(query("add_parcel"), structs.asdict(parcel))
    receipt = Receipt(
        epoch=after.epoch, version=after.version, branch=after.branch, first=head.seq + 1, last=after.seq
    )
    if change.key:
        _keep_key(db, key, change, receipt)
    return receipt


def _known_key(db: apsw.Connection, key: int, change: Change) -> KnownKey | None:
    if change.key is None:
        return None
    for found in db.execute(query("known_key"), {"key": key, "name": change.key.name}):
        digest, epoch, version, branch, first, last, created = found
        receipt = Receipt(epoch=epoch, version=version, branch=branch, first=first, last=last)
        return KnownKey(digest, receipt, created)
    return None


def _keep_key(db: apsw.Connection, key: int, change: Change, receipt: Receipt) -> None:
    """Remember a key, and forget a few that are too old: each append does its share of the sweeping."""
    if change.key is None:
        return
    columns = structs.asdict(receipt) | change.key._asdict() | {"key": key, "created": change.now}
    db.execute(query("keep_key"), columns)
    db.execute(query("forget_keys"), {"before": change.now - KEY_LIFE})


def _target(db: apsw.Connection, key: int, row: SessionRow, change: Change) -> tuple[Position, int]:
    """Give the place behind which records are written, and the sum of tokens up to there."""
    if change.fork is not None:
        return _forked(db, key, row, change.fork, change.now)
    if change.select is None or change.select == row.branch:
        return row.head, row.total
    head = Position(change.select, _tip(db, key, row, change.select))
    return head, _total(db, key, head)


def _forked(db: apsw.Connection, key: int, row: SessionRow, fork: Fork, now: int) -> tuple[Position, int]:
    if fork.parent is not None and not 0 <= fork.seq <= _tip(db, key, row, fork.parent):
        raise NotFound(f"branch {fork.parent} of session {row.id} has no entry {fork.seq}")
    ((last,),) = db.execute(query("last_branch"), {"key": key})
    seq = fork.seq if fork.parent is not None else 0
    columns = {"key": key, "id": last + 1, "parent": fork.parent, "fork_seq": seq, "created": now}
    made = {"name": fork.name, "operation": fork.operation, "former": row.branch}
    db.execute(query("add_branch"), columns | made)
    total = _total(db, key, Position(fork.parent, seq)) if fork.parent is not None else 0
    return Position(last + 1, seq), total


def _tip(db: apsw.Connection, key: int, row: SessionRow, branch: int) -> int:
    """Give the last sequence number of a branch, which a branch without entries has from its fork."""
    for _, _, fork_seq in db.execute(query("branch"), {"key": key, "branch": branch}):
        ((tip,),) = db.execute(query("tip"), {"key": key, "branch": branch})
        return int(fork_seq if tip is None else tip)
    raise NotFound(f"session {row.id} has no branch {branch}")


def _total(db: apsw.Connection, key: int, at: Position) -> int:
    """Give the sum of tokens at a place of a path, which may stand on an earlier branch."""
    branch: int | None = at.branch
    while branch is not None and at.seq > 0:
        for (total,) in db.execute(query("total"), {"key": key, "branch": branch, "seq": at.seq}):
            return int(total)
        branch = _parent(db, key, branch)
    return 0


def _parent(db: apsw.Connection, key: int, branch: int) -> int | None:
    for _, parent, _ in db.execute(query("branch"), {"key": key, "branch": branch}):
        if parent is None or 0 < parent < branch:
            return None if parent is None else int(parent)
    raise StoreDamaged(f"branch {branch} of a session leads nowhere; run `holdfast verify`")


def _read(db: apsw.Connection, at: Address, span: Span, limit: int | None, newest: bool) -> list[Row]:
    key = session_key(db, at)
    which = {"key": key, **span._asdict(), "limit": -1 if limit is None else limit}
    sql = query("read_newest" if newest else "read")
    try:
        rows = [entry_row(columns) for columns in db.execute(sql, which)]
    except UNREADABLE:
        return rows_around(db, key, span, limit=limit, newest=newest)
    return rows[::-1] if newest else rows


def _find(db: apsw.Connection, at: Address, ids: Sequence[str]) -> list[Row]:
    key, found = session_key(db, at), list[Row]()
    for id in set(ids):
        with suppress(*UNREADABLE):  # what cannot be read is not found; reading its span tells of it
            found += [entry_row(columns) for columns in db.execute(query("find"), {"key": key, "id": id})]
    return sorted(found, key=lambda row: (row.branch, row.seq))


def _newest(db: apsw.Connection, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
    key = session_key(db, at)
    newest = {kind: _newest_of(db, key, spans, kind) for kind in kinds}
    return {kind: row for kind, row in newest.items() if row}


def _newest_of(db: apsw.Connection, key: int, spans: Sequence[Span], kind: str) -> Row | None:
    sql = query("newest_message" if kind == MESSAGE else "newest")
    found = (db.execute(sql, {"key": key, "kind": kind, **span._asdict()}) for span in spans)
    try:
        return next((entry_row(columns) for cursor in found for columns in cursor), None)
    except UNREADABLE:
        rows = (row for span in spans for row in reversed(rows_around(db, key, span)))
        return next((row for row in rows if row.kind == kind), None)


def _branches(db: apsw.Connection, at: Address) -> list[Branch]:
    return [branch_row(columns) for columns in db.execute(query("branches"), {"key": session_key(db, at)})]


def _search(
    db: apsw.Connection, tenant: str, words: Sequence[str], user: str | None, before: int | None, limit: int
) -> list[Hit]:
    if not words or not all(_WORD(word) for word in words):
        return []
    which = {
        "words": " ".join(f'"{word}"' for word in words),
        "tenant": tenant,
        "user": user,
        "before": before,
        "limit": limit,
    }
    return [
        Hit(session=session, row=entry_row(columns), mark=mark)
        for mark, session, *columns in db.execute(query("search"), which)
    ]
