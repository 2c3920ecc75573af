"""What the store says of itself: versions, settings, sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..values import Durability, Finding, Recount
from .connections import LONG, Connections
from .queries import migrations
from .verification import findings

__all__ = ["PostgresHealth"]

_TABLES = ("session", "branch", "entry", "damaged", "key", "outbox")


class PostgresHealth:
    """Facts for people, and a check of everything."""

    _connections: Connections

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means here: the least that any connection was told."""
        return self._connections.durability

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
            **self._connections.facts(),
        }

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
