"""The SQLite store: one file, any number of processes, and no acknowledged write is ever lost.

`SqliteStore` implements all six ports. Each method runs one function that takes a connection: the writer runs
functions that write, many in one transaction, and a reader runs functions that read, each in a snapshot. See
`changes` for how changes are applied.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec import structs

from ...errors import AlreadyExists, Fenced, NewerFormat, NotFound, StoreError, StoreUnavailable
from ...files import FILE_MODE
from ...open_databases import dropped_locks
from ...process import paused
from ...threads import READ
from ..admission import busy, check_meta
from ..port import Reads
from ..values import (
    Address,
    BranchRow,
    Change,
    Durability,
    FeedPage,
    Finding,
    Hit,
    Lease,
    Order,
    PageMark,
    Parcel,
    Position,
    Receipt,
    Record,
    Recount,
    Removed,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)
from . import changes, feed, log, search
from .connection import Connection, check_sqlite_version, is_current, migrated
from .connection import connect as open_connection
from .faults import FilesReplaced, translated
from .queries import SQL
from .read_only import NoWriter, is_read_only, readers_of
from .readers import Query, Readers
from .rows import (
    advance_columns,
    marks,
    parcel,
    session_columns,
    session_place,
    session_row,
    sessions,
)
from .soundness import check_lists, check_parcels, check_sessions
from .target import commits_in_loop, mode_of, path_of
from .verify import findings
from .wal import beside, unnoted_fault
from .writer import IDLE, Writer

T = TypeVar("T")

_log = logging.getLogger(__name__)

_SYNC = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteStore:
    """Sessions in one file, which is created with a mode that keeps other users out."""

    durability: Durability = "fsync"

    def __init__(
        self,
        path: str,
        *,
        mode: int = FILE_MODE,
        commits_in_loop: bool = True,
        only_reads: bool = False,
        readers: Readers | None = None,
    ) -> None:
        check_sqlite_version()
        self.path, self.files = path, (Path(path).absolute(),)
        self.read_only = only_reads or (readers is None and is_read_only(path))
        with translated(path):
            db = None if self.read_only else migrated(path, mode)
        if readers is not None and db is not None:  # this is a reader's thread, and a read comes first
            readers.adopt(db)
            db = None
        self._reopening, self._reopened, self._notices = threading.Lock(), 0, dict[str, None]()
        self._readers = readers or readers_of(path)
        self._writer = NoWriter(path) if self.read_only else Writer(path, db, in_loop=commits_in_loop)
        if readers is None:
            self._writer.start()

    @property
    def notices(self) -> tuple[str, ...]:
        """What this process or another program did to the files since the store was opened."""
        if dropped := dropped_locks(self.path):
            self._notices[dropped] = None  # also when the files are opened again
        return tuple(self._notices)

    async def close(self) -> None:
        """Finish pending work and close the file."""

        def close() -> None:
            self._readers.close()
            self._writer.close()

        await asyncio.to_thread(close)

    async def _read(self, job: Query[T], *, here: Query[T] | None = None) -> T:
        seen = self._reopened
        try:
            return await self._readers.run(job, here=here)
        except StoreUnavailable as error:
            if not await self._has_reopened(error, seen):
                raise
        return await self._readers.run(job, here=here)

    async def _run(self, job: Callable[[Connection], T]) -> T:
        """Run a job that writes; if the files were replaced it fails, and the next one finds the new ones."""
        seen = self._reopened
        try:
            return await self._writer.run(job)
        except StoreUnavailable as error:
            await self._has_reopened(error, seen)
            raise

    async def _has_reopened(self, error: StoreUnavailable, seen: int) -> bool:
        """Open the files again if another program replaced them; return False for any other error."""
        if not isinstance(error.__cause__, FilesReplaced) or self.read_only:
            return False
        await asyncio.to_thread(self._reopen, seen, str(error))
        return True

    def _reopen(self, seen: int, why: str) -> None:
        """Close all connections without copying the WAL, since it is no longer that of the file.

        Those of other stores in this process are closed as well: as long as one is open, SQLite lets new ones
        share its memory, which belongs to the old WAL. All are opened again when they are needed. If one is
        busy for too long, this fails, and the next read or commit tries again.
        """
        with self._reopening:
            if self._reopened != seen:
                return
            with translated(self.path), paused():
                try:
                    if not is_current(self.path):
                        raise StoreUnavailable(f"{self.path} was removed or replaced; open the store again")
                except (apsw.NotADBError, NewerFormat, StoreError):
                    self._writer.abandon()
                    raise
            self._reopened += 1
            notice = f"{why}, and the store was opened again"
            _log.warning("%s", notice)
            self._notices[notice] = None

    # Log

    async def commit(self, change: Change) -> Receipt:
        """Apply a change as a whole, or raise the first check that fails and change nothing.

        If another program has replaced the files, a change with a key is applied to the new ones. Without a
        key it cannot be known whether they have it already.
        """
        seen = self._reopened
        try:
            return await self._writer.commit(change)
        except StoreUnavailable as error:
            if not await self._has_reopened(error, seen) or not change.key:
                raise
        return await self._writer.commit(change)

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
        return await self._read(
            lambda db: log.read(db, session_place(db, at), span, limit, newest=newest, kinds=kinds)
        )

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids, in the order of the log."""
        return await self._read(lambda db: log.find(db, session_place(db, at), ids))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
        return await self._read(lambda db: log.newest(db, session_place(db, at), spans, kinds))

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        return await self._read(lambda db: log.branches(db, at, session_place(db, at)))

    async def search(
        self,
        tenant: str,
        words: Sequence[str],
        *,
        user: str | None,
        session: str | None = None,
        before: int | None,
        limit: int,
    ) -> list[Hit]:
        """Return the entries that contain all the words, newest first, starting after a mark."""
        await self._catch_up()
        return await self._read(lambda db: search.search(db, tenant, words, user, session, before, limit))

    async def _catch_up(self) -> None:
        """Index missing messages unless there are too many; the search reads those that stay missing."""
        if self.read_only or not 0 < await self._read(search.behind) <= search.MOST_BEHIND:
            return
        with suppress(StoreUnavailable):  # the disk is full, or other processes keep the file busy
            while await self._writer.run_alone(search.index_some):
                pass

    async def at_once(
        self, at: Address, job: Callable[[SessionRow, Reads], Awaitable[T]], *, small: bool = False
    ) -> T:
        """Run a job on a session and its log in one snapshot of a reader, and return its result."""
        return await self._read(
            partial(log.at_once, at=at, job=job),
            here=partial(log.at_once, at=at, job=job, most=READ) if small else None,
        )

    # Feed

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        """Return the entries of a session, on all branches, that were written after a given one."""
        return await self._read(lambda db: feed.since(db, at, id, limit))

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        """Return the entries of all sessions of a tenant after a cursor; an empty one means the beginning."""
        return await self._read(lambda db: feed.feed(db, tenant, cursor, limit))

    async def feed_end(self, tenant: str) -> str:
        """Return the cursor after all entries of a tenant that exist now."""
        return await self._read(feed.feed_end)

    # Directory

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Create a session with its root branch and first entries, or raise `AlreadyExists`."""

        def create(db: apsw.Connection) -> SessionRow:
            total, tags = sum(record.tokens for record in records), tuple(sorted(set(row.tags)))
            made = structs.replace(row, tags=tags, branch=1, seq=len(records), total=total)
            # The constraint alone would not do: only the lookup notices that its index has lost sessions.
            with suppress(NotFound):
                session_place(db, row.address)
                raise AlreadyExists(f"session {row.id} already exists")
            ((key,),) = db.execute(SQL["add_session"], session_columns(made, marks(records, after=0)))
            root = {"key": key, "id": 1, "parent": None, "fork_seq": 0, "created": row.created}
            db.execute(SQL["add_branch"], root | {"name": "", "operation": "create", "former": None})
            _set_tags(db, key, tags)
            changes.add_entries(db, key, row.id, Position(1, 0), 0, records)
            return made

        return await self._run(create)

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""

        def get(db: apsw.Connection) -> SessionRow:
            return session_row(db, at)[1]

        return await self._read(get, here=get)

    async def page(
        self,
        tenant: str,
        which: SessionFilter,
        *,
        order: Order = "created",
        after: PageMark | None = None,
        limit: int = 100,
    ) -> list[SessionRow]:
        """Return a page of sessions, the newest first by creation or by activity, starting after a mark."""
        name = "page" if which.user is None else "page_of_user"
        if order == "active":  # a scan: every append would have to update an index by activity
            name = "page_by_activity"
        columns = structs.asdict(which) | {"tenant": tenant, "limit": limit}
        columns |= {"moment": after and after.moment, "id": after and after.id}

        def page(db: apsw.Connection) -> list[SessionRow]:
            check_lists(db)
            return sessions(db.execute(SQL[name], columns))

        return await self._read(page)

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
        expected: dict[str, Any] | None = None,
    ) -> SessionRow:
        """Update the given fields; raise `Conflict` if the current meta differs from ``expected``."""
        changes: dict[str, Any] = {
            "title": title,
            "tags": None if tags is None else tuple(sorted(set(tags))),
            "meta": meta,
            "idle": idle,
        }
        given = {name: value for name, value in changes.items() if value is not None}

        def update(db: apsw.Connection) -> SessionRow:
            key, row = session_row(db, at)
            check_meta(row, expected)
            row = structs.replace(row, **given)
            db.execute(SQL["describe_session"], session_columns(row) | {"key": key})
            if "tags" in given:
                _set_tags(db, key, row.tags)
            return row

        return await self._run(update)

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that have been idle for too long, with neither a message nor a lease."""
        which = {"tenant": tenant, "now": now, "limit": limit}

        def due(db: apsw.Connection) -> list[SessionRow]:
            check_sessions(db)
            return sessions(db.execute(SQL["due_sessions"], which))

        return await self._read(due)

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        try:
            return await self._run(lambda db: changes.remove(db, at))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, apsw.FullError):
                raise
            needed = await self._read(lambda db: changes.deletion_bytes(db, at))
            raise StoreUnavailable(
                f"the disk of {self.path} is full, and nothing was deleted: deleting session {at.session} "
                f"needs about {needed / 1e6:,.1f} MB in the WAL; free that much and try again"
            ) from error.__cause__

    # Outbox

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""

        def take(db: apsw.Connection) -> list[Parcel]:
            due = _parcels(db, "due_parcels", {"now": now, "tenant": tenant, "limit": limit})
            for one in due:
                db.execute(SQL["claim_parcel"], {"id": one.id, "until": until})
            return [structs.replace(one, due=until, tries=one.tries + 1) for one in due]

        return await self._run(take)

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._run(lambda db: db.execute(SQL["drop_parcel"], {"id": id}) and None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; without a time the parcel is parked."""
        columns = {"id": id, "error": error, "due": due}
        await self._run(lambda db: db.execute(SQL["fail_parcel"], columns) and None)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        which = {"tenant": tenant, "parked": parked, "limit": limit}
        return await self._read(lambda db: _parcels(db, "parcels", which))

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""

        def revive(db: apsw.Connection) -> None:
            if not list(db.execute(SQL["revive_parcel"], {"id": id, "due": due})):
                raise NotFound(f"no parcel {id} is parked")

        await self._run(revive)

    # Leases: part of the session's row

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Acquire the lease with a higher fence than any before, or raise `Busy` while another is live."""

        def acquire(db: apsw.Connection) -> Lease:
            key, row = session_row(db, at)
            if row.lease_until > now:
                raise busy(at.session, row.holder, row.lease_until - now)
            lease = Lease(fence=row.fence + 1, until=until)
            _set_lease(db, key, lease, holder)
            return lease

        return await self._run(acquire)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Extend a lease, or raise `Fenced` if another worker took over."""

        def renew(db: apsw.Connection) -> Lease:
            key, row = session_row(db, at)
            if row.fence != lease.fence:
                raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
            renewed = Lease(fence=lease.fence, until=until)
            _set_lease(db, key, renewed, row.holder)
            return renewed

        return await self._run(renew)

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Release a lease, which counts as activity up to now; do nothing if another worker took over."""

        def release(db: apsw.Connection) -> None:
            try:
                key, row = session_row(db, at)
            except NotFound:
                return
            if row.fence == lease.fence:
                active = max(row.active, min(row.lease_until, now))
                released = structs.replace(row, lease_until=0, holder="", active=active)
                db.execute(SQL["advance_session"], advance_columns(key, released, marks=0))

        await self._run(release)

    # Health

    async def time(self) -> int | None:
        """Return None: the only clock is that of the machine that opens the file."""
        return None

    async def facts(self) -> dict[str, str]:
        """Return human-readable versions, settings and sizes."""

        def facts(db: apsw.Connection) -> dict[str, str]:
            files = (self.path, beside(self.path, "-wal"))
            size = sum(os.path.getsize(name) for name in files if os.path.exists(name))
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
                "bytes": f"{size:,}",
            }

        return await (self._read(facts) if self.read_only else self._writer.run_alone(facts))

    async def scrub(self) -> bool:
        """Overwrite the remains of deleted sessions in the files; return True if none are left."""
        return await self._writer.run_alone(lambda _: changes.scrub(self.path))

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check everything, and with ``repair`` move damaged records aside."""
        with suppress(StoreError):  # the check below reports the cause
            if not self.read_only:
                await self._writer.run_alone(lambda _: None)  # records what the WAL lost
            elif fault := await self._readers.do(partial(_unnoted_fault, self.path)):
                yield Finding(fault=fault)
        async with aclosing(findings(self.path, self._writer, repair=repair, recount=recount)) as found:
            async for finding in found:
                yield finding


def _unnoted_fault(path: str) -> str:
    if is_read_only(path):
        return ""
    with translated(path):
        db = open_connection(path, write=False)
        try:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return unnoted_fault(db, path)
        finally:
            db.close()


def _set_tags(db: apsw.Connection, key: int, tags: Sequence[str]) -> None:
    db.execute(SQL["drop_tags"], {"key": key})
    for name in tags:
        db.execute(SQL["add_tag"], {"key": key, "name": name})


def _set_lease(db: apsw.Connection, key: int, lease: Lease, holder: str) -> None:
    columns = {"key": key, "fence": lease.fence, "lease_until": lease.until, "holder": holder}
    db.execute(SQL["lease_session"], columns)


def _parcels(db: apsw.Connection, name: str, which: dict[str, Any]) -> list[Parcel]:
    check_parcels(db)
    return [parcel(row) for row in db.execute(SQL[name], which)]


async def connect(url: str) -> SqliteStore:
    """Open ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; create the file if it is missing.

    ``?mode=0660`` gives a group access to a new file; an existing file keeps its mode. With
    ``?commit=thread``, nothing is written or read in the event loop's thread.
    """
    path, mode, in_loop = path_of(url), mode_of(url), commits_in_loop(url)
    if is_read_only(path):
        return await asyncio.to_thread(SqliteStore, path)
    readers, loop = Readers(path, in_loop=in_loop), asyncio.get_running_loop()
    try:
        store = await readers.do(
            partial(SqliteStore, path, mode=mode, commits_in_loop=in_loop, readers=readers)
        )
    except BaseException:  # a canceled task, too: nobody else could close the readers
        loop.run_in_executor(None, readers.close)  # if the task was canceled, the thread is still busy
        raise
    # Later, since a program that only opens the store and reads needs no second thread.
    loop.call_later(IDLE, store._writer.start)  # it continues the search index
    return store


async def connect_to_read(url: str) -> SqliteStore:
    """Open a file and leave it as it is, its WAL included; only an old schema is brought up to date first."""
    path = path_of(url)

    def opened() -> SqliteStore | None:
        with translated(path):
            return SqliteStore(path, only_reads=True) if is_current(path) else None

    store = None if is_read_only(path) else await asyncio.to_thread(opened)
    return store or await connect(url)
