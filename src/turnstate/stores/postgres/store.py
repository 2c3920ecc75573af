"""The PostgreSQL store: one database, any number of machines, nothing acknowledged that was not committed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import structs

from ...errors import AlreadyExists, Busy, Fenced, NewerFormat, NotFound, StoreDamaged
from ..values import Address, Durability, Filter, Finding, Lease, Parcel, Record, Recount, Removed, SessionRow
from .connections import LONG, Connections, Work
from .log import PostgresLog, missing, repeated_id
from .queries import functions, migrations
from .rows import encoded, entry_columns, parcel_row, session_columns, session_row
from .server import Target, target
from .verify import findings

__all__ = [
    "PostgresDirectory",
    "PostgresHealth",
    "PostgresLeases",
    "PostgresOutbox",
    "PostgresStore",
    "connect",
    "migrate",
    "session_at",
]

# The directory in PostgreSQL: which sessions there are.


class PostgresDirectory:
    """Sessions as rows."""

    _connections: Connections

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        columns = session_columns(structs.replace(row, tags=tuple(sorted(set(row.tags)))))
        try:
            ((made,),) = await self._connections.write("create", **columns, **entry_columns(records))
        except AlreadyExists:
            taken = repeated_id(records)
            raise AlreadyExists(f"session {row.id} would hold two entries {taken}") from None
        if not made:
            raise AlreadyExists(f"there is a session {row.id} already")
        total = sum(record.tokens for record in records)
        kept = {"meta": msgspec.json.decode(columns["meta"]), "tags": columns["tags"]}
        return structs.replace(row, **kept, branch=1, seq=len(records), total=total)

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        return await session_at(self._connections, at)

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        behind = {"created": after and after.created, "id": after and after.id}
        name = "page" if which.user is None else "page_of_user"
        asked = structs.asdict(which) | behind | {"tenant": tenant, "limit": limit}
        return [session_row(columns) for columns in await self._connections.read(name, **asked)]

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
        given = {
            "title": title,
            "tags": None if tags is None else sorted(set(tags)),
            "meta": None if meta is None else encoded(meta),
            "idle": idle,
        }
        for columns in await self._connections.write("describe", **at._asdict(), **given):
            return session_row(columns)
        raise missing(at)

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were left idle for too long: without a message and without a lease."""
        found = await self._connections.read("due_sessions", tenant=tenant, now=now, limit=limit)
        return [session_row(columns) for columns in found]

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        (counts,) = await self._connections.write_long("remove", **at._asdict())
        entries, branches, keys, parcels = counts
        if entries is None:
            raise missing(at)
        return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)


async def session_at(connections: Connections, at: Address) -> SessionRow:
    """Read a session, or raise `NotFound`."""
    for columns in await connections.read("session", **at._asdict()):
        return session_row(columns)
    raise missing(at)


# What the store says of itself: versions, settings, sizes.


_TABLES = ("session", "branch", "entry", "damaged", "key", "outbox")
_MADE = re.compile(r'FUNCTION "\w+"\.(\w+)').findall
_SHOWN = 10


class PostgresHealth:
    """Facts for people, and a check of everything."""

    _connections: Connections

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means here: the least that any connection was told."""
        return self._connections.durability

    async def time(self) -> int | None:
        """Return the server's time in milliseconds."""
        ((now,),) = await self._connections.read("time")
        return int(now)

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
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
        """Name the objects in our schema that others made; such a trigger or function may run as ours."""
        schema = self._connections.target.schema
        known = {"tables": [*_TABLES, "migration"], "functions": _MADE(functions(schema))}
        found = await self._connections.read("foreign", schema=schema, **known, limit=_SHOWN + 1)
        names = [f"{kind} {name}" for kind, name in found]
        more = " and more" if len(names) > _SHOWN else ""
        return ", ".join(names[:_SHOWN]) + more or "none"

    async def scrub(self) -> bool:
        """Clear what deleted sessions left in tables and indexes; no more can be said.

        Old pages stand in the log of writes, and freed space is overwritten when it is needed: that no
        byte is left cannot be promised here.
        """
        schema = self._connections.target.schema
        tables = ", ".join(f'"{schema}".{name}' for name in _TABLES)
        async with self._connections.connection() as connection:
            await connection.execute(f"VACUUM (INDEX_CLEANUP ON) {tables}", timeout=LONG)
        return False

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Walk everything, check order and checksums, and set damaged records aside if asked to."""
        async for finding in findings(self._connections, repair=repair, recount=recount):
            yield finding


# Leases in PostgreSQL: a fence that only grows, and a time that lets go of the dead.


class PostgresLeases:
    """The lease of a session is part of its row."""

    _connections: Connections

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        asked = {"holder": holder, "until": until, "now": now}
        for (fence,) in await self._connections.write("acquire", **at._asdict(), **asked):
            return Lease(fence=fence, until=until)
        row = await session_at(self._connections, at)
        raise Busy(f"session {at.session} is leased by {row.holder or 'another worker'}")

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        asked = {"fence": lease.fence, "until": until}
        for (fence,) in await self._connections.write("renew", **at._asdict(), **asked):
            return Lease(fence=fence, until=until)
        await session_at(self._connections, at)
        raise Fenced(f"the lease of session {at.session} was taken over; open the session again")

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Give the lease back, which counts as activity until then; do nothing if somebody took over."""
        await self._connections.write("release", **at._asdict(), fence=lease.fence, now=now)


# The schema comes up to date when a store is opened.


async def migrate(connections: Connections) -> None:
    """Make the schema, or bring it up to date, or refuse it untouched."""
    target = connections.target
    steps = migrations(target.schema)
    async with connections.transaction(frozen=True) as work:
        if await _version(work, target) == len(steps):
            return
    async with connections.transaction() as work:
        await work.rows("pin_names")
        await work.rows("lock_schema", lock=_lock(target.schema))
        version = await _version(work, target)
        if version == len(steps):  # another process did it meanwhile
            return
        if version is None:
            await work.connection.execute(f'CREATE SCHEMA "{target.schema}"')
        if not version:
            await work.rows("make_migration")
        for number in range(version or 0, len(steps)):
            if steps[number]:
                await work.connection.execute(steps[number])
            await work.rows("add_migration", number=number + 1)
        await work.connection.execute(functions(target.schema))


async def _version(work: Work, target: Target) -> int | None:
    """Give the version of the schema, 0 where it is empty, nothing where it is missing."""
    ((there, is_ours, tables),) = await work.rows("schema", schema=target.schema)
    if not there:
        return None
    if not is_ours and tables:
        raise StoreDamaged(
            f"{target.shown}: the schema {target.schema!r} is another program's; add ?schema=NAME to the URL"
        )
    if not is_ours:
        return 0
    ((version,),) = await work.rows("version")
    known = len(migrations(target.schema))
    if not version:
        raise StoreDamaged(f"{target.shown}: the schema {target.schema!r} is damaged: it has no number")
    if version > known:
        raise NewerFormat(
            f"{target.shown} has schema {version}, newer than {known}; update Turnstate to open it"
        )
    return int(version)


def _lock(schema: str) -> int:
    """Give the number under which those who migrate a schema wait for each other."""
    return int.from_bytes(sha256(f"turnstate schema {schema}".encode()).digest()[:8], signed=True)


# The outbox in PostgreSQL: whoever takes a parcel passes over those that others are taking.


class PostgresOutbox:
    """Parcels as rows; a change writes them with the entries that they speak of."""

    _connections: Connections

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        asked = {"now": now, "until": until, "limit": limit, "tenant": tenant}
        return [parcel_row(columns) for columns in await self._connections.write("take", **asked)]

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._connections.write("deliver", id=id)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        await self._connections.write("fail", id=id, error=error, due=due)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        found = await self._connections.read("parcels", tenant=tenant, parked=parked, limit=limit)
        return [parcel_row(columns) for columns in found]

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        if not await self._connections.write("revive", id=id, due=due):
            raise NotFound(f"no parcel {id} is parked")


class PostgresStore(PostgresLog, PostgresDirectory, PostgresOutbox, PostgresLeases, PostgresHealth):
    """Sessions in a schema of a database. It belongs to the event loop in which it was opened."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def close(self) -> None:
        """Finish what was begun and let go of the connections."""
        await self._connections.close()


async def connect(url: str) -> PostgresStore:
    """Open ``postgresql://user:password@host/database``; the schema is made where it is missing."""
    connections = await Connections.open(target(url))
    try:
        await migrate(connections)
    except BaseException:
        await connections.close()
        raise
    return PostgresStore(connections)
