"""Salvage: copy everything that can still be read of a damaged file to a new file next to it.

Rows are read by ranges of keys; a range that cannot be read is halved until only the lost rows are left. An
entry whose bytes do not match their checksum is set aside. Only rows that the B-trees lead to are copied,
since unreferenced pages may contain erased data. A session whose row is lost may still be in an index. The
damaged file is neither written nor replaced: its owner does that after stopping all processes that use it.

`rows_around` reads around damage in the same way while a store is in use: row by row, and by a table scan.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import apsw
from msgspec import Struct, structs

from ...errors import StoreDamaged
from ...files import FILE_MODE, sync_folder
from ..values import Row, Span
from ..verify.descriptions import DEFAULT_COUNTER
from .connection import connect, migrate, with_lock
from .faults import UNREADABLE
from .queries import SQL
from .rows import SessionPlace, checksum, entry_row, stored_content, unreadable_row

MAX_FAILURES = 100_000
"""Ranges of one table that may fail before the rest of it is skipped, so salvage takes seconds, not hours."""

_FAILURES = (*UNREADABLE, apsw.IOError)
_NO_TABLE = apsw.SQLError  # the definition of the table is damaged
_UNKNOWN_END = 2**40
_FIRST, _LAST = "", b""  # SQLite sorts every blob after every text

_TABLES = {"damaged": 1, "session": 1, "entry": 1, "branch": 0, "tag": 0, "key": 0}
"""The tables that are read by ranges of a number, and the step to the next row: 0 if rows may share a number,
such as the number of their session.
"""


class Salvaged(Struct, frozen=True):
    """A salvaged file under its temporary name, and how much it contains."""

    part: str
    sessions: int
    entries: int


def salvage_path(path: str) -> str:
    """Return the name of the file to which a damaged one is salvaged."""
    return f"{path}.salvaged"


def salvage(path: str) -> Salvaged:
    """Copy everything that can be read to a new file; `publish` renames it."""
    part = f"{salvage_path(path)}.part"
    _remove(part)
    try:
        migrate(part, _mode(path))
        with closing(connect(path, write=False)) as source, closing(connect(part, write=True)) as target:
            source.pragma("writable_schema", "ON")  # opens a truncated file, and ignores a broken table
            with source.hold.read_marks():
                source.execute("BEGIN")
                with_lock(target, lambda: _copy(source, target))
            ((sessions, entries),) = target.execute(SQL["salvaged"])
    except BaseException:  # a signal, too: a copy that is half done must not be found later
        _remove(part)
        raise
    return Salvaged(part, sessions, entries)


def _mode(path: str) -> int:
    """Return the mode of a copy: the mode of the damaged file, but never readable by all users."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return FILE_MODE if mode & stat.S_IRWXO else FILE_MODE | mode & 0o060


def publish(path: str, part: str) -> None:
    """Rename a salvaged file durably."""
    with open(part, "rb") as file:  # before it has the name that promises a whole copy
        os.fsync(file.fileno())
    os.rename(part, salvage_path(path))
    sync_folder(os.path.dirname(os.path.abspath(path)))


def _remove(part: str) -> None:
    for name in (part, f"{part}-wal", f"{part}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(name)


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    if not {name for _, name, *_ in source.execute(SQL["schema"])} & set(_TABLES):
        raise StoreDamaged(
            f"{source.filename} has none of the tables of Turnstate; there is nothing to salvage"
        )
    for table in _TABLES:
        with suppress(_NO_TABLE):
            for columns in _readable(source, table):
                if table != "entry":
                    _add(target, table, columns)
                elif _is_sound(*columns):
                    id, kind, body = columns[4:7]
                    content = stored_content(id.decode(), kind.decode(), body)
                    _add(target, table, (*columns[:4], *content, *columns[7:]))
                else:
                    _add(target, "unsound_entry", columns[1:7])
    with suppress(_NO_TABLE):
        for columns in _parcels(source):
            _add(target, "parcel", columns)
    _remake_sessions(source, target)
    target.execute(SQL["set_promises"], {"key": None})
    with suppress(*_FAILURES, _NO_TABLE):  # feed cursors stay valid, even beyond the last entry
        for (last,) in source.execute(SQL["last_key"]):
            target.execute(SQL["continue_keys"], {"last": last})


def _add(target: apsw.Connection, table: str, columns: tuple[Any, ...]) -> None:
    with suppress(apsw.ConstraintError):  # a column has a wrong type: the row is damaged
        target.execute(SQL[f"restore_{table}"], columns)


def _readable(source: apsw.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that can be read, some of them twice if a session has several."""
    waiting, failures = [_ends(source, table)], 0
    while waiting and failures < MAX_FAILURES:
        low, high = waiting.pop()
        try:
            for columns in source.execute(SQL[f"salvage_{table}"], (low, high)):
                low = columns[0] + _TABLES[table]
                yield columns
        except _FAILURES:
            failures += 1
            middle = (low + high) // 2
            waiting += [(middle + 1, high), (low, middle)] if low < high else []  # the lower half first


def _ends(source: apsw.Connection, table: str) -> tuple[int, int]:
    """Return the lowest and highest number in a table, with defaults if they cannot be read."""
    first, last = 1, _UNKNOWN_END
    with suppress(*_FAILURES):
        ((found,),) = source.execute(SQL[f"first_of_{table}"])
        first = found if found is not None else 1
    with suppress(*_FAILURES):
        ((found,),) = source.execute(SQL[f"last_of_{table}"])
        last = found if found is not None else 0
    return first, last


def _is_sound(_: Any, *columns: Any) -> bool:
    session, branch, seq, id, kind, body, tokens, _, known = columns
    try:
        return bool(checksum(session, branch, seq, id.decode(), kind.decode(), tokens, body) == known)
    except (UnicodeDecodeError, AttributeError, TypeError):
        return False


def _parcels(source: apsw.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield parcels from both ends until one cannot be read."""
    for name, start in (("next_parcel", _FIRST), ("parcel_before", _LAST)):
        found: list[Any] = [(start,)]
        with suppress(*_FAILURES):
            while found := list(source.execute(SQL[name], {"after": found[0][0]})):
                yield found[0]


def _remake_sessions(source: apsw.Connection, target: apsw.Connection) -> None:
    """Create the sessions that are left only in an index; checking the new file restores their heads."""
    known = list[tuple[Any, ...]]()
    for name in ("indexed_sessions", "indexed_sessions_from_the_end"):
        with suppress(*_FAILURES, _NO_TABLE):
            known.extend(source.execute(SQL[name]))
    for columns in known:
        _add(target, "indexed_session", (*columns, DEFAULT_COUNTER))


# Reading around damage: return whatever can still be read, and mark the rest as damaged.


MAX_LOST = 100_000
"""Entries of a span that may be missing; if more are, the number of entries itself is damaged."""


def promised(db: apsw.Connection, place: SessionPlace, span: Span) -> Span:
    """Return the part of a span that must have entries according to the rows of session and branch."""
    found = list(db.execute(SQL["branch"], {"key": place.key, "branch": span.branch}))
    if not found and span.branch != place.branch:
        return Span(span.branch, 1, 0)
    fork, tip = found[0][1:] if found else (span.first - 1, place.seq)
    if span.branch == place.branch:
        tip = place.seq
    return Span(span.branch, max(span.first, fork + 1), min(span.last, tip))


def rows_around(
    db: apsw.Connection, place: SessionPlace, span: Span, *, limit: int | None = None, newest: bool = False
) -> list[Row]:
    """Return the promised entries of a span in order; those that cannot be read are marked as damaged."""
    span = _limited(promised(db, place, span), limit, newest=newest)
    found = _rows_by_index(db, place.key, span)
    if len(found) < span.last - span.first + 1:
        scanned = _rows_of_table(db, place.key, span)
        found |= {
            seq: structs.replace(row, recovered=True) for seq, row in scanned.items() if seq not in found
        }
    if span.last - span.first + 1 - len(found) > MAX_LOST:
        raise StoreDamaged(
            f"a session claims to have {span.last:,} entries on branch {span.branch}, "
            f"but {len(found):,} can be read; run `turnstate verify`"
        )
    return [found.get(seq) or unreadable_row(span.branch, seq) for seq in range(span.first, span.last + 1)]


def _limited(span: Span, limit: int | None, *, newest: bool) -> Span:
    if limit is None:
        return span
    if newest:
        return Span(span.branch, max(span.first, span.last - limit + 1), span.last)
    return Span(span.branch, span.first, min(span.last, span.first + limit - 1))


def _rows_by_index(db: apsw.Connection, key: int, span: Span) -> dict[int, Row]:
    """Return the entries that the index of positions leads to, except any that it confuses with others."""
    which = {"key": key, **span._asdict(), "limit": -1}
    found = dict[int, Row]()
    try:
        for columns in db.execute(SQL["read"], which):
            _take(db, key, entry_row(columns), found)
    except UNREADABLE:
        for seq in range(span.first, min(span.last, span.first + MAX_LOST) + 1):
            with suppress(*UNREADABLE):
                for columns in db.execute(SQL["read"], {**which, "first": seq, "last": seq}):
                    _take(db, key, entry_row(columns), found)
    return found


def _take(db: apsw.Connection, key: int, row: Row, found: dict[int, Row]) -> None:
    """Keep an entry if it is sound, or if at least its own row has that position."""
    here = {"key": key, "branch": row.branch, "seq": row.seq}
    if not row.damaged or list(db.execute(SQL["own_place"], here)) == [(key, row.branch, row.seq)]:
        found[row.seq] = row


def _rows_of_table(db: apsw.Connection, key: int, span: Span) -> dict[int, Row]:
    """Scan the table from the beginning and, if that fails, from the end as well."""
    which: dict[str, Any] = {"key": key, **span._asdict()}
    found = dict[int, Row]()
    for name in ("scan", "scan_backwards"):
        with suppress(*UNREADABLE):
            for columns in db.execute(SQL[name], which):
                row = entry_row(columns)
                found[row.seq] = row
            break
    return found
