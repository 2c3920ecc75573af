"""The PostgreSQL store: one database, any number of machines, and writes as durable as the server.

`PostgresStore` implements all six ports; a write is one statement, and so one round trip. `log` builds the
arguments of a change to the log, and the error if it is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ...errors import AlreadyExists, Fenced, NotFound
from ...threads import INLINE, off_loop
from ..admission import busy, check_meta
from ..ahead import FIRST, NEWEST, NEWEST_BYTES, Ahead
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
    Receipt,
    Record,
    Recount,
    Removed,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)
from . import feed
from .appends import BatchedAppends
from .connections import LONG, Connections, migrate
from .log import entries, missing, repeated_id
from .queries import functions, migrations
from .rows import (
    branch_row,
    encoded,
    entry_columns,
    parcel_row,
    session_and_entries,
    session_columns,
    session_row,
)
from .search import Indexer, search
from .server import target
from .verify import findings

_TABLES = ("session", "branch", "entry", "word", "indexed", "damaged", "key", "outbox")
_CREATED = re.compile(r'FUNCTION "\w+"\.(\w+)').findall
_MAX_FOREIGN = 10  # objects that `facts` names


class PostgresStore:
    """Sessions in a schema of a database. A store belongs to the event loop in which it was opened."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._appends, self._indexer = BatchedAppends(connections), Indexer(connections)

    async def close(self) -> None:
        """Finish pending work and close the connections; a child that inherited them does nothing."""
        if self._connections.owner.is_elsewhere:
            return
        await self._appends.batches.close()
        await self._indexer.close()
        await self._connections.close()

    # Log

    async def commit(self, change: Change) -> Receipt:
        """Apply a change as a whole, or raise the error of the first failed check and change nothing."""
        try:
            receipt = await self._appends.receipt(change)
        except AlreadyExists:
            taken = repeated_id(change.records) or await self._first_taken(change)
            raise AlreadyExists(f"session {change.at.session} already has an entry {taken}") from None
        self._indexer.written()
        return receipt

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span in order; ``limit`` selects the first ones, or the newest."""
        which: dict[str, Any] = {**at._asdict(), **span._asdict(), "limit": limit}
        name = "read" if kinds is None else "read_kinds"
        if kinds is not None:
            which["kinds"] = list(kinds)
        return entries(at, await self._connections.read(f"{name}_newest" if newest else name, **which))

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries with these ids, in log order."""
        return entries(at, await self._connections.read("find", **at._asdict(), ids=list(ids)))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; its newest span comes first."""
        path = {
            "branches": [span.branch for span in spans],
            "firsts": [span.first for span in spans],
            "lasts": [span.last for span in spans],
        }
        found = await self._connections.read("newest", **at._asdict(), **path, kinds=list(set(kinds)))
        return {row.kind: row for row in entries(at, found)}

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        found = await self._connections.read("branches", **at._asdict())
        if not found:
            raise missing(at)
        return [branch_row(columns) for columns in found if columns[0] is not None]

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
        which: dict[str, Any] = {"user": user, "session": session, "before": before, "limit": limit}
        return await search(self._connections, self._indexer, tenant, words, **which)

    async def ahead(self, at: Address, kinds: Sequence[str]) -> tuple[SessionRow, Ahead]:
        """Return a session, and its log with the rows that are usually read already loaded."""
        much = {"first": FIRST, "newest": NEWEST, "size": NEWEST_BYTES}
        found = await self._connections.read("ahead", **at._asdict(), kinds=list(kinds), **much)
        if not found:
            raise missing(at)
        session, rows = session_and_entries(found)
        marks = {row.kind: row for row in sorted(rows, key=lambda row: row.seq)}
        return session, Ahead(self, session, rows, {kind: marks.get(kind) for kind in kinds})

    async def _first_taken(self, change: Change) -> str:
        ids = [record.id for record in change.records]
        return next((row.id for row in await self.find(change.at, ids)), ids[0])

    # Feed

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        """Return the entries of a session, on all branches, that were written after a given one."""
        return await feed.since(self._connections, at, id, limit)

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        """Return the entries of all sessions of a tenant after a cursor; start at the beginning if empty."""
        return await feed.feed(self._connections, tenant, cursor, limit)

    async def feed_end(self, tenant: str) -> str:
        """Return the cursor after all entries of a tenant that exist now."""
        return await feed.feed_end(self._connections)

    # Directory

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Create a session with its root branch and first entries, or raise `AlreadyExists`."""
        columns = session_columns(structs.replace(row, tags=tuple(sorted(set(row.tags)))))
        try:
            large = sum(len(record.body) for record in records) > INLINE
            columns |= await off_loop(lambda: entry_columns(records), large=large)
            ((made,),) = await self._connections.write("create", **columns)
        except AlreadyExists:
            taken = repeated_id(records)
            raise AlreadyExists(f"session {row.id} already has an entry {taken}") from None
        if not made:
            raise AlreadyExists(f"session {row.id} already exists")
        self._indexer.written()
        total = sum(record.tokens for record in records)
        kept = {"meta": msgspec.json.decode(columns["meta"]), "tags": columns["tags"]}
        return structs.replace(row, **kept, branch=1, seq=len(records), total=total)

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""
        for columns in await self._connections.read("session", **at._asdict()):
            return session_row(columns)
        raise missing(at)

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
        columns = structs.asdict(which) | {"tenant": tenant, "limit": limit}
        columns |= {"moment": after and after.moment, "id": after and after.id}
        name = "page" if which.user is None else "page_of_user"
        if order == "active":
            name = "page_by_activity"
        return [session_row(columns) for columns in await self._connections.read(name, **columns)]

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
        """Change the given fields and keep the rest; raise `Conflict` if meta is not as expected."""
        given = {
            "title": title,
            "tags": None if tags is None else sorted(set(tags)),
            "meta": None if meta is None else encoded(meta),
            "idle": idle,
        }
        while True:
            known = None if expected is None else await self._known_meta(at, expected)
            for columns in await self._connections.write("describe", **at._asdict(), **given, known=known):
                return session_row(columns)
            if known is None:
                raise missing(at)

    async def _known_meta(self, at: Address, expected: dict[str, Any]) -> bytes:
        """Check the metadata, and return its bytes; they must be unchanged at the time of the write."""
        for columns in await self._connections.read("session", **at._asdict()):
            check_meta(session_row(columns), expected)
            return bytes(columns["meta"])
        raise missing(at)

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that have been idle for too long, with neither a message nor a lease."""
        found = await self._connections.read("due_sessions", tenant=tenant, now=now, limit=limit)
        return [session_row(columns) for columns in found]

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        (counts,) = await self._connections.write_long("remove", **at._asdict())
        entries, branches, keys, parcels = counts
        if entries is None:
            raise missing(at)
        return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)

    # Outbox

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        given = {"now": now, "until": until, "limit": limit, "tenant": tenant}
        self._indexer.written()  # a worker that waits for parcels also has time to index
        return [parcel_row(columns) for columns in await self._connections.write("take", **given)]

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._connections.write("deliver", id=id)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; park the parcel if ``due`` is None."""
        await self._connections.write("fail", id=id, error=error, due=due)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        found = await self._connections.read("parcels", tenant=tenant, parked=parked, limit=limit)
        return [parcel_row(columns) for columns in found]

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        if not await self._connections.write("revive", id=id, due=due):
            raise NotFound(f"no parcel {id} is parked")

    # Leases: part of the session's row

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Acquire the lease with a higher fence than ever before, or raise `Busy` while another is live."""
        given = {"holder": holder, "until": until, "now": now}
        for (fence,) in await self._connections.write("acquire", **at._asdict(), **given):
            return Lease(fence=fence, until=until)
        row = await self.get(at)
        raise busy(at.session, row.holder, row.lease_until - now)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Extend a lease, or raise `Fenced` if another worker took over."""
        given = {"fence": lease.fence, "until": until}
        for (fence,) in await self._connections.write("renew", **at._asdict(), **given):
            return Lease(fence=fence, until=until)
        await self.get(at)
        raise Fenced(f"the lease of session {at.session} was taken over; open the session again")

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Release a lease, which counts as activity until now; do nothing if another worker took over."""
        await self._connections.write("release", **at._asdict(), fence=lease.fence, now=now)

    # Health

    @property
    def durability(self) -> Durability:
        """The durability of an acknowledged write: the weakest that any connection has seen."""
        return self._connections.durability

    async def time(self) -> int | None:
        """Return the server's time in milliseconds."""
        ((now,),) = await self._connections.read("time")
        return int(now)

    async def facts(self) -> dict[str, str]:
        """Return versions, settings and sizes for people to read."""
        target, server = self._connections.target, self._connections.server
        (sizes,) = await self._connections.read("sizes", schema=target.schema)
        return {
            "store": "postgresql",
            "path": target.shown,
            "database": sizes["name"],
            "postgresql": server.version,
            "synchronous_commit": server.synchronous_commit,
            "fsync": server.fsync,
            "full_page_writes": server.full_page_writes,
            "schema": f"{target.schema} {len(migrations(target.schema))}",
            "bytes": f"{sizes['own']:,} of {sizes['database']:,} in the database",
            "foreign": await self._foreign(),
            **self._connections.facts(),
        }

    async def _foreign(self) -> str:
        """Name the objects in our schema that others created; a trigger or function could run as our user."""
        schema = self._connections.target.schema
        known = {"tables": [*_TABLES, "migration"], "functions": _CREATED(functions(schema))}
        found = await self._connections.read("foreign", schema=schema, **known, limit=_MAX_FOREIGN + 1)
        names = [f"{kind} {name}" for kind, name in found]
        more = " and more" if len(names) > _MAX_FOREIGN else ""
        return ", ".join(names[:_MAX_FOREIGN]) + more or "none"

    async def scrub(self) -> bool:
        """Vacuum the remains of deleted sessions in tables and indexes, and return False.

        The WAL still has old pages, and freed space is overwritten only when it is needed, so there is no
        guarantee that nothing is left.
        """
        schema = self._connections.target.schema
        tables = ", ".join(f'"{schema}".{name}' for name in _TABLES)
        async with self._connections.connection() as connection:
            await connection.execute(f"VACUUM (INDEX_CLEANUP ON) {tables}", timeout=LONG)
        return False

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check everything, and with ``repair`` move damaged records aside."""
        async for finding in findings(self._connections, repair=repair, recount=recount):
            yield finding


async def connect(url: str) -> PostgresStore:
    """Open ``postgresql://user:password@host/database``; create the schema if it is missing."""
    connections = await Connections.open(target(url))
    try:
        await migrate(connections)
    except BaseException:  # a canceled task, too: nobody else could close these connections
        await connections.close()
        raise
    return PostgresStore(connections)
