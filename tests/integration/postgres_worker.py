"""A process that never ends its migration: python postgres_worker.py URL."""

from __future__ import annotations

import asyncio
import sys

from turnstate.stores.postgres import connect, connections


async def migrate(url: str) -> None:
    real = connections.migrations
    connections.migrations = lambda schema: (*real(schema), "SELECT pg_sleep(1000)")  # type: ignore[assignment]
    await connect(url)


if __name__ == "__main__":
    asyncio.run(migrate(sys.argv[1]))
