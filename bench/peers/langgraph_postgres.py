"""LangGraph's PostgreSQL saver: one saver per conversation, and a pool that all of them share.

A saver lets only one conversation write at a time, so each conversation has its own saver here. The pool has
ten connections, as many as Turnstate has.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from bench.peers import langgraph_threads
from bench.peers.service import Handle, Row, serve

_saver: Any = import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver  # only installed here
_pools: Any = import_module("psycopg_pool")
_rows: Any = import_module("psycopg.rows")

CONNECTIONS = 10
_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes")


class Thread(langgraph_threads.Thread):
    """A conversation on a connection of the pool."""

    async def settings(self) -> dict[str, str]:
        """Read the settings of a connection from the pool."""
        async with self._saver.conn.connection() as connection:
            found = [await (await connection.execute(f"SHOW {name}")).fetchone() for name in _SETTINGS]
        return {name: value for row in found for name, value in row.items()}

    async def close(self) -> None:
        """Do nothing: the connections are shared."""


class Threads:
    """One database, any number of conversations."""

    packages: tuple[str, ...] = ("langgraph", "langgraph-checkpoint-postgres", "psycopg")

    def __init__(self) -> None:
        self._pools = dict[str, Any]()

    def messages(self, row: Row) -> list[Any]:
        """Convert one of our messages to LangChain's."""
        return langgraph_threads.messages(row)

    async def opened(self, path: str, session: str) -> Handle:
        """Open a conversation."""
        if path not in self._pools:
            how = {"autocommit": True, "prepare_threshold": 0, "row_factory": _rows.dict_row}
            pool = _pools.AsyncConnectionPool(
                path, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, kwargs=how
            )
            await pool.open()
            await _saver(pool).setup()
            self._pools[path] = pool
        return Thread(_saver(self._pools[path]), session)


if __name__ == "__main__":
    asyncio.run(serve(Threads()))
