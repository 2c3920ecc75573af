"""Converts between table rows and values."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any

import msgspec

from ...errors import InputError, StoreDamaged
from ..values import BranchRow, Parcel, Record, Row, SessionRow

# Words as PostgreSQL stores them: quoted lexemes of a ``tsvector``, and a ``tsquery`` for all of them.


LONGEST = 500
"""The most characters of a word: at most 2,000 bytes, where PostgreSQL accepts 2,046."""

MOST_BYTES = 1_000_000
"""The most bytes of an entry's quoted words; PostgreSQL accepts 1,048,575. Words beyond are not indexed."""

DAMAGED = "_d"
"""The word of a message that is damaged when it is indexed: every search of its tenant or user finds it."""

_ENTRY = 9  # columns of an entry, including its session

_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]").search


def vector(words: Sequence[str]) -> str | None:
    """Return the words of an entry as the text of a ``tsvector``, or None if there are none."""
    text = quoted(word for word in words if _usable(word))
    return (text if len(text.encode()) <= MOST_BYTES else quoted(kept(words))) or None


def query_of(words: Sequence[str], *, tenant: str, user: str | None) -> str | None:
    """Return the text of a ``tsquery`` for entries with all these words; None if no entry can have them."""
    if not words or not all(_usable(word) for word in words):
        return None
    theirs, all_words = (" & ".join(map(_quoted, some)) for some in (marks(tenant, user), words))
    return f"{theirs} & ({all_words} | {_quoted(DAMAGED)})"


def marks(tenant: str, user: str | None) -> list[str]:
    """Return the lexemes that mark the tenant and the user of a session's entries."""
    return [_mark("t", tenant)] + ([] if user is None else [_mark("u", user)])


def kept(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that fit into the index."""
    size = 0
    for word in filter(_usable, words):
        size += len(_quoted(word).encode()) + 1
        if size <= MOST_BYTES:
            yield word


def quoted(words: Iterator[str] | Sequence[str]) -> str:
    """Return words as the text of a ``tsvector``."""
    return " ".join(_quoted(word) for word in words)


def _mark(kind: str, name: str) -> str:
    return f"_{kind}{sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _usable(word: str) -> bool:
    return 0 < len(word) <= LONGEST and not _IMPOSSIBLE(word)


def _quoted(word: str) -> str:
    doubled = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def session_row(columns: Any) -> SessionRow:
    """Convert columns to a session."""
    fields = dict(columns)
    try:
        meta = msgspec.json.decode(fields["meta"], type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = f"{fields['id']!r:.80} is damaged ({error})"
        raise StoreDamaged(f"the description of session {shown}; run `turnstate verify`") from None
    return SessionRow(**fields | {"meta": meta, "tags": tuple(fields["tags"])})


def session_and_entries(found: Sequence[Any]) -> tuple[SessionRow, list[Row]]:
    """Convert rows with the columns of a session, followed by the columns of an entry or by NULLs."""
    session = session_row(dict(list(found[0].items())[:-_ENTRY]))
    each = (tuple(columns)[-_ENTRY:] for columns in found)
    return session, [entry_row(columns) for columns in each if columns[2] is not None]


def session_columns(row: SessionRow) -> dict[str, Any]:
    """Return the columns of a new session."""
    columns = msgspec.structs.asdict(row)
    return columns | {"meta": encoded(row.meta), "marks": quoted(marks(row.tenant, row.user))}


def encoded(meta: dict[str, Any]) -> bytes:
    """Return the meta of a session as JSON."""
    try:
        return msgspec.json.encode(meta)
    except UnicodeEncodeError:
        raise InputError("a lone surrogate in meta cannot be stored") from None


def entry_columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return records as one list per column; totals count from the first record."""
    return {
        "ids": [record.id for record in records],
        "kinds": [record.kind for record in records],
        "bodies": [record.body for record in records],
        "tokens": [record.tokens for record in records],
        "totals": list(accumulate(record.tokens for record in records)),
        "sums": [content_sum(record.tokens, record.kind, record.id, record.body) for record in records],
    }


def entry_row(columns: Sequence[Any]) -> Row:
    """Convert columns to an entry, which is damaged if its bytes do not match its checksum."""
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
    """Return the checksum of an entry's content.

    It does not cover the running total, which can be recomputed.
    """
    return zlib.crc32(body, zlib.crc32(f"{tokens}\0{kind}\0{id}".encode(errors="surrogatepass")))


def checksum(session: int, branch: int, seq: int, content: int) -> int:
    """Mix the position of an entry into its checksum.

    Only the server knows the position at the time of the write, so it does the same arithmetic. Positions
    that differ in one bit have different checksums.
    """
    return content ^ ((session * 1_000_003 + branch * 10_007 + seq) & 0xFFFFFFFF)


def branch_row(columns: Sequence[Any]) -> BranchRow:
    """Convert columns to a branch; raise `StoreDamaged` unless its parent is an earlier one (no cycles)."""
    id, parent, fork_seq, created, name, operation, former = columns
    if parent is not None and not 0 < parent < id:
        raise StoreDamaged(f"branch {id} is damaged: it forks from branch {parent}; run `turnstate verify`")
    return BranchRow(
        id=id,
        parent=parent,
        fork_seq=fork_seq,
        created=created,
        name=name,
        operation=operation,
        former=former,
    )


def parcel_row(columns: Any) -> Parcel:
    """Convert columns to a parcel."""
    return Parcel(**dict(columns))
