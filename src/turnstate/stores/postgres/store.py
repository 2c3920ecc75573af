"""The PostgreSQL store: one database, any number of machines, nothing acknowledged that was not committed."""

from __future__ import annotations

from .connections import Connections
from .directory import PostgresDirectory
from .health import PostgresHealth
from .leases import PostgresLeases
from .log import PostgresLog
from .migration import migrate
from .outbox import PostgresOutbox
from .target import target

__all__ = ["PostgresStore", "connect"]


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
