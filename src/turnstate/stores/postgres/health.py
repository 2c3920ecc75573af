"""What the store says of itself: versions, settings, sizes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from ..values import Durability, Finding, Recount
from .connections import LONG, Connections
from .queries import functions, migrations
from .verification import findings

__all__ = ["PostgresHealth"]

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
