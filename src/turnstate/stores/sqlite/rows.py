"""Conversion between rows of tables and values."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from ...errors import NotFound, StoreDamaged
from ..values import MESSAGE, Address, BranchRow, Parcel, Record, Row, SessionRow
from .queries import SQL
from .soundness import ids_are_indexed

__all__ = [
    "SessionPlace",
    "advance_columns",
    "branch_row",
    "checksum",
    "entry_columns",
    "entry_row",
    "marks",
    "parcel",
    "session_columns",
    "session_place",
    "session_row",
    "sessions",
    "unreadable_row",
]

T = TypeVar("T")

_SESSION_FIELDS = (
    *("tenant", "id", "user", "title", "tags", "counter", "meta", "created", "active", "idle", "epoch"),
    *("branch", "seq", "total", "version", "fence", "lease_until", "holder", "ended", "reason"),
)
"""The columns of a session after its key, in the order of the queries that read it."""


class SessionPlace(NamedTuple):
    """A session by its number, and its head, up to which it promises to have entries."""

    key: int
    branch: int
    seq: int


def session_row(db: apsw.Connection, at: Address) -> tuple[int, SessionRow]:
    """Return a session with its integer key, or raise `NotFound`."""
    for found in db.execute(SQL["session"], at._asdict()):
        return found[0], _session(found)
    for found in db.execute(SQL["session_at"], {"key": _scanned(db, at)}):
        return found[0], _session(found)
    raise NotFound(f"there is no session {at.session}")


def session_place(db: apsw.Connection, at: Address) -> SessionPlace:
    """Return the integer key of a session and its head, or raise `NotFound`."""
    for found in db.execute(SQL["session_place"], at._asdict()):
        return SessionPlace(*found)
    for found in db.execute(SQL["place_at"], {"key": _scanned(db, at)}):
        return SessionPlace(*found)
    raise NotFound(f"there is no session {at.session}")


def _scanned(db: apsw.Connection, at: Address) -> int | None:
    """Return the key of a session that the index of ids does not lead to, or None.

    The table is scanned only if that index is known to be damaged. A session that is in the index but not in
    the table is lost, which differs from one that never existed: raise `StoreDamaged`.
    """
    known = list(db.execute(SQL["indexed_key"], at._asdict()))
    if not known and ids_are_indexed(db):
        return None
    for (key,) in db.execute(SQL["scanned_key"], at._asdict()):
        return int(key)
    if known:
        raise StoreDamaged(f"the row of session {at.session} cannot be read; run `turnstate verify`")
    return None


def sessions(found: apsw.Cursor) -> list[SessionRow]:
    """Convert rows to sessions."""
    return [_session(columns) for columns in found]


def session_columns(row: SessionRow) -> dict[str, Any]:
    """Return the columns of a session."""
    columns = msgspec.structs.asdict(row)
    lists = {"tags": msgspec.json.encode(row.tags), "meta": msgspec.json.encode(row.meta)}
    return {**columns, **lists, "expires": row.expires}


def marks(records: Sequence[Record], *, after: int) -> int:
    """Return the sum of the sequence numbers that records other than messages get after an entry."""
    return sum(seq for seq, record in enumerate(records, after + 1) if record.kind != MESSAGE)


def advance_columns(key: int, row: SessionRow, marks: int) -> dict[str, Any]:
    """Return the columns of a session that an append changes."""
    return {
        "key": key,
        "marks": marks,
        "epoch": row.epoch,
        "branch": row.branch,
        "seq": row.seq,
        "total": row.total,
        "version": row.version,
        "active": row.active,
        "ended": row.ended,
        "reason": row.reason,
        "expires": row.expires,
        "fence": row.fence,
        "lease_until": row.lease_until,
        "holder": row.holder,
    }


def entry_row(columns: Sequence[Any]) -> Row:
    """Convert columns to an entry, which is damaged if its bytes do not match its checksum."""
    session, branch, seq, id, kind, body, tokens, total, known = columns
    try:
        sound = checksum(session, branch, seq, id, kind, tokens, body) == known and type(total) is int
    except TypeError:  # in a damaged row a column may have another type
        sound = False
    if not sound:
        return _remains(branch, seq, id, kind, body, tokens, total)
    return Row(branch=branch, seq=seq, id=id, kind=kind, body=body, tokens=tokens, total=total)


def unreadable_row(branch: int, seq: int) -> Row:
    """Return the placeholder of an entry that cannot be read."""
    id = f"unreadable-{branch}-{seq}"
    return Row(branch=branch, seq=seq, id=id, kind=MESSAGE, body=b"", tokens=0, total=0, damaged=True)


def _remains(*columns: Any) -> Row:
    """Return what is left of a damaged entry, with defaults for fields of a wrong type."""
    branch, seq, id, kind, body, tokens, total = columns
    blank = unreadable_row(_as(int, branch, 0), _as(int, seq, 0))
    return Row(
        branch=blank.branch,
        seq=blank.seq,
        id=_as(str, id, blank.id),
        kind=_as(str, kind, blank.kind),
        body=_as(bytes, body, b""),
        tokens=_as(int, tokens, 0),
        total=_as(int, total, 0),
        damaged=True,
    )


def _as(kind: type[T], value: Any, otherwise: T) -> T:
    return value if isinstance(value, kind) else otherwise


def checksum(session: int, branch: int, seq: int, id: str, kind: str, tokens: int, body: bytes) -> int:
    """Return the checksum of what an entry contains and of its position.

    The running total is left out, since it can be computed again.
    """
    place = f"{session}\0{branch}\0{seq}\0{tokens}\0{kind}\0{id}"
    return zlib.crc32(body, zlib.crc32(place.encode()))


def branch_row(columns: Sequence[Any]) -> BranchRow:
    """Convert columns to a branch; raise `StoreDamaged` unless its parent is an earlier one (no cycles)."""
    id, parent, fork_seq, created, name, operation, former = columns
    fields = {"id": id, "parent": parent, "fork_seq": fork_seq, "created": created}
    try:
        branch = msgspec.convert(fields | {"name": name, "operation": operation, "former": former}, BranchRow)
    except msgspec.ValidationError as error:
        raise StoreDamaged(f"branch {id!r:.40} is damaged ({error}); run `turnstate verify`") from None
    if branch.parent is not None and not 0 < branch.parent < branch.id:
        raise StoreDamaged(f"branch {id} is damaged: it forks from branch {parent}; run `turnstate verify`")
    return branch


def entry_columns(key: int, branch: int, seq: int, total: int, record: Record) -> dict[str, Any]:
    """Return the columns of an entry."""
    return {
        "key": key,
        "branch": branch,
        "seq": seq,
        "id": record.id,
        "kind": record.kind,
        "body": record.body,
        "tokens": record.tokens,
        "total": total,
        "checksum": checksum(key, branch, seq, record.id, record.kind, record.tokens, record.body),
    }


def parcel(columns: tuple[Any, ...]) -> Parcel:
    """Convert columns to a parcel."""
    id, tenant, session, kind, body, due, tries, error, parked = columns
    return Parcel(
        id=id,
        tenant=tenant,
        session=session,
        kind=kind,
        body=body,
        due=due,
        tries=tries,
        error=error,
        parked=bool(parked),
    )


def _session(columns: tuple[Any, ...]) -> SessionRow:
    fields = dict(zip(_SESSION_FIELDS, columns[1:], strict=True))
    try:
        lists = {"tags": msgspec.json.decode(fields["tags"]), "meta": msgspec.json.decode(fields["meta"])}
        return msgspec.convert(fields | lists, SessionRow)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        shown = f"{fields['id']!r:.80} is damaged ({error})"
        raise StoreDamaged(f"the description of session {shown}; run `turnstate verify`") from None
