"""LangGraph's SQLite saver, one connection per conversation."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

from bench.peers import langgraph_threads, sqlite_settings
from bench.peers.service import Handle, Row, serve

_saver: Any = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver  # only installed here


class Thread(langgraph_threads.Thread):
    """A conversation with its own connection."""

    def __init__(self, opened: Any, saver: Any, session: str) -> None:
        super().__init__(saver, session)
        self._opened = opened

    async def settings(self) -> dict[str, str]:
        """Read the settings of the connection."""

        async def row(sql: str) -> Any:
            return await (await self._saver.conn.execute(sql)).fetchone()

        return await sqlite_settings.read(row)

    async def close(self) -> None:
        """Close the connection."""
        await self._opened.__aexit__(None, None, None)


class Threads:
    """One file, any number of conversations."""

    packages: tuple[str, ...] = ("langgraph", "langgraph-checkpoint-sqlite")

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def messages(self, row: Row) -> list[Any]:
        """Convert one of our messages to LangChain's."""
        return langgraph_threads.messages(row)

    async def opened(self, path: str, session: str) -> Handle:
        """Open a conversation."""
        opened = _saver.from_conn_string(path)
        saver = await opened.__aenter__()
        await saver.setup()
        if self._full:
            await saver.conn.execute("PRAGMA synchronous = FULL")
        return Thread(opened, saver, session)


if __name__ == "__main__":
    asyncio.run(serve(Threads(full="full" in sys.argv[1:])))
