"""`SQLAlchemySession` of openai-agents on PostgreSQL: one row per message, and a pool that sessions share.

The pool has ten connections, as many as Turnstate has. Our messages are stored as items unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.peers.service import Handle, Row, serve

_memory: Any = import_module("agents.extensions.memory")  # only installed here, so it cannot be type-checked
_sqlalchemy: Any = import_module("sqlalchemy")
_engines: Any = import_module("sqlalchemy.ext.asyncio")

CONNECTIONS = 10
_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes")


class Session:
    """An open session."""

    def __init__(self, engine: Any, session: str) -> None:
        self._engine = engine
        self._session = _memory.SQLAlchemySession(session, engine=engine)

    async def write(self, messages: Sequence[Any]) -> None:
        """Add items."""
        await self._session.add_items(list(messages))

    async def read(self, count: int) -> int:
        """Read the newest items and return how many there are."""
        return len(await self._session.get_items(limit=count))

    async def settings(self) -> dict[str, str]:
        """Read the settings of a connection from the pool."""
        async with self._engine.connect() as connection:
            return {
                name: (await connection.execute(_sqlalchemy.text(f"SHOW {name}"))).scalar_one()
                for name in _SETTINGS
            }

    async def close(self) -> None:
        """Do nothing: the connections are shared."""


class Sessions:
    """One database, any number of sessions."""

    packages: tuple[str, ...] = ("openai-agents", "SQLAlchemy", "asyncpg")

    def __init__(self) -> None:
        self._engines = dict[str, Any]()

    def messages(self, row: Row) -> list[Any]:
        """Return a message as an item, unchanged."""
        return [row]

    async def opened(self, path: str, session: str) -> Handle:
        """Open a session."""
        if path not in self._engines:
            url = path.replace("postgresql://", "postgresql+asyncpg://", 1)
            engine = _engines.create_async_engine(url, pool_size=CONNECTIONS, max_overflow=0)
            await _memory.SQLAlchemySession("", engine=engine, create_tables=True).get_items(limit=1)
            self._engines[path] = engine
        return Session(self._engines[path], session)


if __name__ == "__main__":
    asyncio.run(serve(Sessions()))
