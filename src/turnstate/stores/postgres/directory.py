"""The directory in PostgreSQL: which sessions there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from ...errors import AlreadyExists
from ..values import Address, Filter, Record, Removed, SessionRow
from .connections import Connections
from .log import missing, repeated_id
from .rows import encoded, entry_columns, session_columns, session_row

__all__ = ["PostgresDirectory", "session_at"]


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
