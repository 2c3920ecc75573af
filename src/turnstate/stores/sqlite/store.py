"""The SQLite store: one file, any number of processes, nothing acknowledged that can be lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw
from msgspec import structs

from ...errors import (
    AlreadyExists,
    Busy,
    Fenced,
    InputError,
    NotFound,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from ...files import FILE_MODE
from ..values import (
    Address,
    Durability,
    Filter,
    Finding,
    Lease,
    Parcel,
    Position,
    Record,
    Recount,
    Removed,
    SessionRow,
)
from .connection import LEAST_SQLITE, Readers, migrate
from .faults import telling
from .log import SqliteLog, add_entries
from .queries import query, scanning
from .read_only import NoWriter, is_read_only, readers_of
from .rows import advance_columns, marks, parcel, session_columns, session_place, session_row, sessions
from .soundness import expiry_is_indexed, list_is_indexed, parcels_are_indexed
from .verify import findings
from .writer import Writer

__all__ = [
    "SqliteDirectory",
    "SqliteHealth",
    "SqliteLeases",
    "SqliteOutbox",
    "SqliteStore",
    "connect",
    "remove",
    "room",
    "scrub",
]

# Removal: a session leaves no byte behind.


SPARE = 256_000
"""Bytes for the pages of indexes that even a short session changes."""

_TRIES = 100
_PAUSE = 0.02

_DROPS = ("words", "entries", "damaged", "branches", "keys", "tags", "parcels", "session")


def remove(db: apsw.Connection, at: Address) -> Removed:
    """Delete a session with everything that hangs on it."""
    which = {"key": session_place(db, at).key, **at._asdict()}
    ((entries, branches, keys, parcels),) = db.execute(query("counts"), which)
    ((promised, indexed),) = db.execute(query("entry_counts"), which)
    if indexed != entries or promised > entries:
        raise StoreDamaged(
            f"an index leads to {min(indexed, entries)} of {max(promised, indexed, entries)} entries of "
            f"session {at.session}; the others would stay; run `turnstate verify --repair`, then delete it"
        )
    for name in _DROPS:
        db.execute(query(f"drop_{name}"), which)
    return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)


def room(db: apsw.Connection, at: Address) -> str:
    """Say how much room a deletion needs: every page that it changes stands in the log of writes first."""
    ((size,),) = db.execute(query("size"), session_place(db, at)._asdict())
    return (
        f"the disk of {db.filename} is full, and nothing is deleted: session {at.session} takes about "
        f"{(size * 2 + SPARE) / 1e6:,.1f} MB in the log of writes to delete; free that much and try again"
    )


def scrub(db: apsw.Connection) -> bool:
    """Overwrite what deleted sessions left; tell whether that came about while others used the file."""
    for _ in range(_TRIES):
        try:
            db.execute(query("optimize_words"))
            db.execute("VACUUM")
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                return True
        except (apsw.BusyError, apsw.LockedError):
            pass  # somebody writes; SQLite does not wait for them here
        time.sleep(_PAUSE)
    return False


# The directory in SQLite: which sessions there are.


class SqliteDirectory:
    """Sessions as rows."""

    _writer: Writer
    _readers: Readers

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        return await self._writer.run(lambda db: _create(db, row, records))

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        return await self._readers.run(lambda db: session_row(db, at)[1])

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        columns = structs.asdict(which) | {"tenant": tenant, "limit": limit}
        behind = {"created": after and after.created, "id": after and after.id}
        name = "page" if which.user is None else "page_of_user"
        return await self._readers.run(lambda db: _page(db, name, columns | behind))

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
    ) -> SessionRow:
        """Change what is given and leave the rest."""
        changes: dict[str, Any] = {
            "title": title,
            "tags": None if tags is None else tuple(sorted(set(tags))),
            "meta": meta,
            "idle": idle,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        return await self._writer.run(lambda db: _update(db, at, given))

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were left idle for too long: without a message and without a lease."""
        which = {"tenant": tenant, "now": now, "limit": limit}
        return await self._readers.run(lambda db: _due(db, which))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        try:
            return await self._writer.run(lambda db: remove(db, at))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, apsw.FullError):
                raise
            raise StoreUnavailable(await self._readers.run(lambda db: room(db, at))) from error.__cause__


def _create(db: apsw.Connection, row: SessionRow, records: Sequence[Record]) -> SessionRow:
    total = sum(record.tokens for record in records)
    made = structs.replace(row, tags=tuple(sorted(set(row.tags))), branch=1, seq=len(records), total=total)
    if _is_there(db, row.address):
        raise AlreadyExists(f"there is a session {row.id} already")
    ((key,),) = db.execute(query("add_session"), session_columns(made) | {"marks": marks(records, behind=0)})
    root = {"key": key, "id": 1, "parent": None, "fork_seq": 0, "created": row.created}
    db.execute(query("add_branch"), root | {"name": "", "operation": "create", "former": None})
    _set_tags(db, key, made.tags)
    add_entries(db, key, Position(1, 0), 0, records)
    return made


def _is_there(db: apsw.Connection, at: Address) -> bool:
    try:
        session_place(db, at)
    except NotFound:
        return False
    return True


def _page(db: apsw.Connection, name: str, which: dict[str, Any]) -> list[SessionRow]:
    """Return a page of sessions, by their index or, if that is damaged, by a scan of their table."""
    sql = query(name) if list_is_indexed(db) else scanning(name, "session")
    return sessions(db.execute(sql, which))


def _due(db: apsw.Connection, which: dict[str, Any]) -> list[SessionRow]:
    """Return sessions that are overdue, by their index or, if that is damaged, by a scan of their table."""
    name = "due_sessions"
    return sessions(db.execute(query(name) if expiry_is_indexed(db) else scanning(name, "session"), which))


def _update(db: apsw.Connection, at: Address, given: dict[str, Any]) -> SessionRow:
    key, row = session_row(db, at)
    row = structs.replace(row, **given)
    db.execute(query("describe_session"), session_columns(row) | {"key": key})
    if "tags" in given:
        _set_tags(db, key, row.tags)
    return row


def _set_tags(db: apsw.Connection, key: int, tags: Sequence[str]) -> None:
    db.execute(query("drop_tags"), {"key": key})
    for name in tags:
        db.execute(query("add_tag"), {"key": key, "name": name})


# What the store says of itself: versions, settings, sizes.


_SYNC = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteHealth:
    """Facts for people, and a check of everything."""

    durability: Durability = "fsync"
    path: str
    read_only: bool
    _writer: Writer
    _readers: Readers

    async def time(self) -> int | None:
        """Return None: a file has no clock but that of the machine that opens it."""
        return None

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
        if self.read_only:
            return await self._readers.run(self._facts)
        return await self._writer.run_alone(self._facts)

    async def scrub(self) -> bool:
        """Overwrite what deleted sessions left in files; tell whether no byte is left in them."""
        return await self._writer.run_alone(scrub)

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Walk everything, check order and checksums, and set damaged records aside if asked to."""
        async with aclosing(findings(self.path, self._writer, repair=repair, recount=recount)) as found:
            async for finding in found:
                yield finding

    def _facts(self, db: apsw.Connection) -> dict[str, str]:
        sizes = [os.path.getsize(name) for name in (self.path, f"{self.path}-wal") if os.path.exists(name)]
        writing = {
            "journal_mode": str(db.pragma("journal_mode")),
            "synchronous": _SYNC[int(db.pragma("synchronous"))],
            "secure_delete": "ON" if db.pragma("secure_delete") == 1 else "OFF",
        }
        return {
            "store": "sqlite",
            "path": os.path.abspath(self.path),
            "sqlite": apsw.sqlite_lib_version(),
            **({"access": "read-only"} if self.read_only else writing),
            "schema": str(db.pragma("user_version")),
            "bytes": f"{sum(sizes):,}",
        }


# Leases in SQLite: a fence that only grows, and a time that lets go of the dead.


class SqliteLeases:
    """The lease of a session is part of its row."""

    _writer: Writer

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        return await self._writer.run(lambda db: _acquire(db, at, holder, until, now))

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        return await self._writer.run(lambda db: _renew(db, at, lease, until))

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        await self._writer.run(lambda db: _release(db, at, lease, now))


def _acquire(db: apsw.Connection, at: Address, holder: str, until: int, now: int) -> Lease:
    key, row = session_row(db, at)
    if row.lease_until > now:
        raise Busy(f"session {at.session} is leased by {row.holder or 'another worker'}")
    lease = Lease(fence=row.fence + 1, until=until)
    _set(db, key, lease, holder)
    return lease


def _renew(db: apsw.Connection, at: Address, lease: Lease, until: int) -> Lease:
    key, row = session_row(db, at)
    if row.fence != lease.fence:
        raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
    renewed = Lease(fence=lease.fence, until=until)
    _set(db, key, renewed, row.holder)
    return renewed


def _release(db: apsw.Connection, at: Address, lease: Lease, now: int) -> None:
    try:
        key, row = session_row(db, at)
    except NotFound:
        return
    if row.fence == lease.fence:
        active = max(row.active, min(row.lease_until, now))
        released = structs.replace(row, lease_until=0, holder="", active=active)
        db.execute(query("advance_session"), advance_columns(key, released, marks=0))


def _set(db: apsw.Connection, key: int, lease: Lease, holder: str) -> None:
    columns = {"key": key, "fence": lease.fence, "lease_until": lease.until, "holder": holder}
    db.execute(query("lease_session"), columns)


# The outbox in SQLite: parcels in the order in which they are due.


_BY_ITSELF = "INDEXED BY sqlite_autoindex_outbox_1"
"""The table itself: it has no numbers of rows, and NOT INDEXED would leave the choice of a tree to SQLite."""


class SqliteOutbox:
    """Parcels as rows; a change writes them with the entries that they speak of."""

    _writer: Writer
    _readers: Readers

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        return await self._writer.run(lambda db: _take(db, now, until, limit, tenant))

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._writer.run(lambda db: db.execute(query("drop_parcel"), {"id": id}) and None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        columns = {"id": id, "error": error, "due": due}
        await self._writer.run(lambda db: db.execute(query("fail_parcel"), columns) and None)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        which = {"tenant": tenant, "parked": parked, "limit": limit}
        return await self._readers.run(lambda db: _parcels(db, "parcels", which))

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        await self._writer.run(lambda db: _revive(db, id, due))


def _take(db: apsw.Connection, now: int, until: int, limit: int, tenant: str | None) -> list[Parcel]:
    which = {"now": now, "tenant": tenant, "limit": limit}
    due = _parcels(db, "due_parcels", which)
    for one in due:
        db.execute(query("claim_parcel"), {"id": one.id, "until": until})
    return [structs.replace(one, due=until, tries=one.tries + 1) for one in due]


def _parcels(db: apsw.Connection, name: str, which: dict[str, Any]) -> list[Parcel]:
    """Return parcels, by their index or, if that is damaged, by a scan of the outbox."""
    sql = query(name) if parcels_are_indexed(db) else scanning(name, "outbox", _BY_ITSELF)
    return [parcel(row) for row in db.execute(sql, which)]


def _revive(db: apsw.Connection, id: str, due: int) -> None:
    if not list(db.execute(query("revive_parcel"), {"id": id, "due": due})):
        raise NotFound(f"no parcel {id} is parked")


_MODES = {"0600": 0o600, "0640": 0o640, "0660": 0o660}
"""Modes that a new file may have."""


class SqliteStore(SqliteLog, SqliteDirectory, SqliteOutbox, SqliteLeases, SqliteHealth):
    """Sessions in one file, which is made with a mode that keeps others out."""

    def __init__(self, path: str, *, mode: int = FILE_MODE) -> None:
        _check_version()
        self.path, self.files = path, (Path(path).absolute(),)
        self.read_only = is_read_only(path)
        with telling(path):
            if not self.read_only:
                migrate(path, mode)
            self._readers = readers_of(path)
            self._writer = NoWriter(path) if self.read_only else Writer(path)

    async def close(self) -> None:
        """Finish what was begun and let go of the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()
        self._writer.close()


# The URL is not repeated: one that was meant for a server may hold a password.
_NO_FILE = (
    "the URL of an SQLite store names no file: write sqlite:///relative.db or sqlite:////absolute.db, "
    "with %3F for ?, %23 for # and %5B for [ in a name"
)


async def connect(url: str) -> SqliteStore:
    """Open ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; the file is made where it is missing.

    ``?mode=0660`` makes it for a group; a file that exists keeps its mode.
    """
    return await asyncio.to_thread(SqliteStore, _path(url), mode=_mode(url))


def _mode(url: str) -> int:
    """Return the mode that a new file gets."""
    query = urlsplit(url).query
    if not query:
        return FILE_MODE
    name, _, value = query.partition("=")
    if name != "mode" or value not in _MODES:
        raise InputError(
            f"?{query:.40} in the URL of an SQLite store is not understood; write "
            f"?mode={' or ?mode='.join(_MODES)}, "
            "the mode of a new file, which never lets everybody read it"
        )
    return _MODES[value]


def _path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InputError(_NO_FILE) from None
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or parts.fragment or not path or set(unquote(url)) & set("\0\t\r\n"):
        raise InputError(_NO_FILE)
    folder = Path(path).parent
    if not folder.is_dir():
        raise InputError(f"the folder {str(folder)!r} of the store does not exist; make it first")
    if Path(path).is_dir():
        raise InputError(f"{path!r} is a folder; give the path of a file")
    return path


def _check_version() -> None:
    linked = tuple(int(number) for number in apsw.sqlite_lib_version().split("."))
    if linked < LEAST_SQLITE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can damage databases in WAL mode; "
            f"install an apsw that brings {'.'.join(map(str, LEAST_SQLITE))} or newer"
        )
