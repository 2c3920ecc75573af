"""Conversion between table rows and values, and lookups of single rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import apsw
import msgspec

from ...errors import NotFound, StoreDamaged
from ..values import MESSAGE, Address, BranchRow, Parcel, Record, Row, SessionRow
from .faults import UNREADABLE
from .queries import SQL
from .soundness import check_sessions

T = TypeVar("T")

_SESSION_FIELDS = (
    *("tenant", "id", "user", "title", "tags", "counter", "meta", "created", "active", "idle", "epoch"),
    *("branch", "seq", "total", "version", "fence", "lease_until", "holder", "ended", "reason"),
)
"""The columns of a session after its key, in the order of the queries that read it."""


_is_uuid = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_uuid_groups = itemgetter(slice(8), slice(8, 12), slice(12, 16), slice(16, 20), slice(20, None))


class SessionPlace(NamedTuple):
    """The integer key of a session and its head, up to which it promises to have entries."""

    key: int
    branch: int
    seq: int


def session_row(db: apsw.Connection, at: Address) -> tuple[int, SessionRow]:
    """Return a session with its integer key, or raise `NotFound`."""
    for found in db.execute(SQL["session"], at._asdict()):
        return found[0], _session(found)
    raise _not_found(db, at)


def session_place(db: apsw.Connection, at: Address) -> SessionPlace:
    """Return the integer key of a session and its head, or raise `NotFound`."""
    for found in db.execute(SQL["session_place"], at._asdict()):
        return SessionPlace(*found)
    raise _not_found(db, at)


def _not_found(db: apsw.Connection, at: Address) -> NotFound | StoreDamaged:
    """Return the error for a session that cannot be read, which may be lost and not unknown."""
    if list(db.execute(SQL["indexed_key"], at._asdict())):
        return StoreDamaged(f"the row of session {at.session} cannot be read; run `turnstate verify`")
    check_sessions(db)
    return NotFound(f"there is no session {at.session}")


def last_branch(db: apsw.Connection, key: int, head: int) -> int:
    """Return the number of the newest branch; raise `StoreDamaged` if a newer one has entries."""
    ((last,),) = db.execute(SQL["last_branch"], {"key": key})
    if last is None or last < max(head, single_value(db, "last_branch_of_entries", key=key) or 0):
        raise StoreDamaged("branches of a session are missing; run `turnstate verify`")
    return int(last)


def single_value(db: apsw.Connection, name: str, **which: int | str) -> Any:
    """Return the single value of a query, or None if the rows that it reads are damaged."""
    with suppress(*UNREADABLE):
        for (value,) in db.execute(SQL[name], which):
            return value
    return None


def longer_than_promised(branch: int, seq: int) -> StoreDamaged:
    """Return the error for a branch that has entries after its end."""
    return StoreDamaged(
        f"branch {branch} should end at entry {seq}, but there are entries after it; run `turnstate verify`"
    )


def sessions(found: apsw.Cursor) -> list[SessionRow]:
    """Convert rows to sessions."""
    return [_session(columns) for columns in found]


def session_columns(row: SessionRow, marks: int = 0) -> dict[str, Any]:
    """Return the columns of a session."""
    columns = msgspec.structs.asdict(row)
    lists = {"tags": msgspec.json.encode(row.tags), "meta": msgspec.json.encode(row.meta)}
    return {**columns, **lists, "expires": row.expires, "marks": marks}


def marks(records: Sequence[Record], *, after: int) -> int:
    """Return the sum of the sequence numbers that records get after an entry, without messages."""
    return sum(seq for seq, record in enumerate(records, after + 1) if record.kind != MESSAGE)


def advance_columns(key: int, row: SessionRow, marks: int) -> tuple[Any, ...]:
    """Return the values of a session that an append changes, in the order of the statement."""
    head = (row.epoch, row.branch, row.seq, row.total, row.version, row.active, row.ended, row.reason)
    return (*head, row.expires, row.fence, row.lease_until, row.holder, marks, key)


def stored_id(id: str) -> str | bytes:
    """Return an id as stored: a UUID as 16 bytes."""
    return bytes.fromhex(id.replace("-", "")) if _is_uuid(id) else id


def _uuid(raw: bytes) -> str:
    return "-".join(_uuid_groups(raw.hex()))


def stored_content(id: str, kind: str, body: bytes) -> tuple[str | bytes, str | int, bytes]:
    """Return id, kind and body as stored; a body that begins with the id is stored without it."""
    if body.startswith(first := b'{"id":"%b","' % id.encode()):
        body = body[len(first) - 1 :]  # keep the quote, which distinguishes it from a whole body
    elif not body.startswith(b"{"):
        body = b"\0" + body
    return stored_id(id), 0 if kind == MESSAGE else kind, body


def _whole_body(id: str, stored: bytes) -> bytes:
    """Restore a body from its stored form."""
    first = stored[:1]
    if first == b"{":
        return stored
    return stored[1:] if first == b"\0" else b'{"id":"%b",%b' % (id.encode(), stored)


def add_functions(db: apsw.Connection) -> None:
    """Add the SQL functions that verification uses; they accept any value of a damaged row, as bytes."""

    def id_of(kind: str, id: bytes | None) -> bytes:
        return _uuid(id).encode() if id and kind == "blob" else id or b""

    def body_of(kind: str, id: bytes | None, body: bytes | None) -> bytes:
        return _whole_body(id_of(kind, id).decode(errors="replace"), body or b"")

    for name, function, count in (
        ("entry_id", id_of, 2),
        ("entry_body", body_of, 3),
        ("stored_id", stored_id, 1),
    ):
        db.create_scalar_function(name, function, count, deterministic=True)  # type: ignore[arg-type]


def entry_row(columns: Sequence[Any]) -> Row:
    """Convert columns to an entry, marked as damaged if its bytes do not match its checksum."""
    session, branch, seq, id, kind, body, tokens, total, known = columns
    try:
        if type(id) is not str:
            id = _uuid(id)
        if kind == 0:
            kind = MESSAGE
        body = _whole_body(id, body)
        sound = checksum(session, branch, seq, id, kind, tokens, body) == known and type(total) is int
    except (TypeError, AttributeError):  # in a damaged row a column may have another type
        sound = False
    if not sound:
        return _remains(branch, seq, id, kind, body, tokens, total)
    return Row(branch=branch, seq=seq, id=id, kind=kind, body=body, tokens=tokens, total=total)


def unreadable_row(branch: int, seq: int) -> Row:
    """Return a placeholder for an entry that cannot be read."""
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
    """Return the checksum of an entry's content and position.

    The running total is left out, since it can be recomputed.
    """
    place = f"{session}\0{branch}\0{seq}\0{tokens}\0{kind}\0{id}"
    return crc32(body, crc32(place.encode()))


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


def entry_values(key: int, branch: int, seq: int, total: int, record: Record) -> tuple[Any, ...]:
    """Return the values of a new entry, in the order of the statement."""
    id, kind, body, tokens = record.id, record.kind, record.body, record.tokens
    known = checksum(key, branch, seq, id, kind, tokens, body)
    return key, branch, seq, *stored_content(id, kind, body), tokens, total, known


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
