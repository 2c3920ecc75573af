"""`RedisSession` of openai-agents: one list per session, and a client that sessions share.

The client opens as many connections as it needs. Our messages are stored as items unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.peers.service import Handle, Row, serve

_memory: Any = import_module("agents.extensions.memory")  # only installed here, so it cannot be type-checked
_redis: Any = import_module("redis.asyncio")

_SETTINGS = ("appendonly", "appendfsync")


class Session:
    """An open session."""

    def __init__(self, client: Any, session: str) -> None:
        self._client = client
        self._session = _memory.RedisSession(session, redis_client=client)

    async def write(self, messages: Sequence[Any]) -> None:
        """Add items."""
        await self._session.add_items(list(messages))

    async def read(self, count: int) -> int:
        """Read the newest items and return how many there are."""
        return len(await self._session.get_items(limit=count))

    async def settings(self) -> dict[str, str]:
        """Ask the server for its settings."""
        found: dict[str, str] = await self._client.config_get(*_SETTINGS)
        return found

    async def close(self) -> None:
        """Do nothing: the connections are shared."""


class Sessions:
    """One server, any number of sessions."""

    packages: tuple[str, ...] = ("openai-agents", "redis")

    def __init__(self) -> None:
        self._clients = dict[str, Any]()

    def messages(self, row: Row) -> list[Any]:
        """Return a message as an item, unchanged."""
        return [row]

    async def opened(self, path: str, session: str) -> Handle:
        """Open a session."""
        if path not in self._clients:
            self._clients[path] = _redis.Redis.from_url(path, decode_responses=True)
        return Session(self._clients[path], session)


if __name__ == "__main__":
    asyncio.run(serve(Sessions()))
