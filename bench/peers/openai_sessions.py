"""`SQLiteSession` of openai-agents: one row per message, read from the newest backwards.

Our messages are stored as items unchanged, so both sides keep the same JSON.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.peers import sqlite_settings
from bench.peers.service import Handle, Row, serve

_agents: Any = import_module("agents")  # only installed here, so it cannot be type-checked


class Full(_agents.SQLiteSession):  # type: ignore[misc]
    """A session in which every commit waits for the disk."""

    @staticmethod
    def _configure_connection(conn: Any) -> None:
        _agents.SQLiteSession._configure_connection(conn)
        conn.execute("PRAGMA synchronous = FULL")


class Session:
    """An open session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def write(self, messages: Sequence[Any]) -> None:
        """Add items."""
        await self._session.add_items(list(messages))

    async def read(self, count: int) -> int:
        """Read the newest items and return how many there are."""
        return len(await self._session.get_items(limit=count))

    async def settings(self) -> dict[str, str]:
        """Read the settings of a connection in a worker thread, like those that write."""

        async def row(sql: str) -> Any:
            return await asyncio.to_thread(lambda: self._session._get_connection().execute(sql).fetchone())

        return await sqlite_settings.read(row)

    async def close(self) -> None:
        """Close the session."""
        self._session.close()


class Sessions:
    """One file, any number of sessions."""

    packages: tuple[str, ...] = ("openai-agents",)

    def __init__(self, *, full: bool) -> None:
        self._kind = Full if full else _agents.SQLiteSession

    def messages(self, row: Row) -> list[Any]:
        """Return a message as an item, unchanged."""
        return [row]

    async def opened(self, path: str, session: str) -> Handle:
        """Open a session."""
        return Session(self._kind(session, path))


if __name__ == "__main__":
    asyncio.run(serve(Sessions(full="full" in sys.argv[1:])))
