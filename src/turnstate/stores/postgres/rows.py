"""Rows of tables as values, and back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from ...errors import InputError, StoreDamaged
from ..values import Branch, Parcel, Record, Row, SessionRow
from .lexemes import marks, quoted, vector

__all__ = [
    "branch_row",
    "checksum",
    "content_sum",
    "encoded",
    "entry_columns",
    "entry_row",
    "parcel_row",
    "session_columns",
    "session_row",
]


def session_row(columns: Any) -> SessionRow:
    """Give a session as a value."""
    fields = dict(columns)
    try:
        meta = msgspec.json.decode(fields["meta"], type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = f"{fields['id']!r:.80} is damaged ({error})"
        raise StoreDamaged(f"the description of session {shown}; run `turnstate verify`") from None
    return SessionRow(**fields | {"meta": meta, "tags": tuple(fields["tags"])})


def session_columns(row: SessionRow) -> dict[str, Any]:
    """Give the columns of a new session."""
    columns = msgspec.structs.asdict(row)
    return columns | {"meta": encoded(row.meta), "marks": quoted(marks(row.tenant, row.user))}


def encoded(meta: dict[str, Any]) -> bytes:
    """Give what is noted of a session as JSON."""
    try:
        return msgspec.json.encode(meta)
    except UnicodeEncodeError:
        raise InputError("a lone surrogate in meta cannot be stored") from None


def entry_columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Give records as a list a column; totals count from the first of them on."""
    return {
        "ids": [record.id for record in records],
        "kinds": [record.kind for record in records],
        "bodies": [record.body for record in records],
        "tokens": [record.tokens for record in records],
        "totals": list(accumulate(record.tokens for record in records)),
        "sums": [content_sum(record.tokens, record.kind, record.id, record.body) for record in records],
        "words": [vector(record.words) for record in records],
    }


def entry_row(columns: Sequence[Any]) -> Row:
    """Give an entry as a value, marked where its bytes do not match its checksum."""
    session, branch, seq, id, kind, body, tokens, total, known = columns
    return Row(
        branch=branch,
        seq=seq,
        id=id,
        kind=kind,
        body=body,
        tokens=tokens,
        total=total,
        damaged=checksum(session, branch, seq, content_sum(tokens, kind, id, body)) != known,
    )


def content_sum(tokens: int, kind: str, id: str, body: bytes) -> int:
    """Sum up what an entry says, so that a changed byte is noticed.

    The running total is not in it: that can be worked out again, and then the entry is whole.
    """
    return zlib.crc32(body, zlib.crc32(f"{tokens}\0{kind}\0{id}".encode(errors="surrogatepass")))


def checksum(session: int, branch: int, seq: int, content: int) -> int:
    """Mix into a sum where its entry stands, which only the server knows when it is written.

    The server does the same arithmetic; a place that differs in one bit gives another number.
    """
    return content ^ ((session * 1_000_003 + branch * 10_007 + seq) & 0xFFFFFFFF)


def branch_row(columns: Sequence[Any]) -> Branch:
    """Give a branch as a value; one that does not come from an earlier one would lead in a circle."""
    id, parent, fork_seq, created, name, operation, former = columns
    if parent is not None and not 0 < parent < id:
        raise StoreDamaged(f"branch {id} is damaged: it forks from branch {parent}; run `turnstate verify`")
    return Branch(
        id=id,
        parent=parent,
        fork_seq=fork_seq,
        created=created,
        name=name,
        operation=operation,
        former=former,
    )


def parcel_row(columns: Any) -> Parcel:
    """Give a parcel as a value."""
    return Parcel(**dict(columns))
