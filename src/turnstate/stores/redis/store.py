"""The Redis store: the same promises as any other store, and durable as far as the server is set to be.

Sessions are never given a time to live: one that vanished before it was offloaded would be lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from .directory import RedisDirectory
from .health import RedisHealth
from .leases import RedisLeases
from .log import RedisLog
from .outbox import RedisOutbox
from .search import RedisSearch
from .server import Server
from .settings import Settings, claim_layout, settings
from .target import Target, parsed
from .witness import MOST_SESSIONS, Witness

__all__ = ["RedisStore", "connect"]


class RedisStore(RedisLog, RedisSearch, RedisDirectory, RedisOutbox, RedisLeases, RedisHealth):
    """Sessions on a server, or on a Cluster."""

    def __init__(self, server: Server, target: Target, found: Sequence[Settings]) -> None:
        self._server, self._target, self._settings = server, target, found
        self._buckets = OrderedDict()
        # What a server keeps for certain needs no witness.
        self._witness = Witness(0 if self.durability == "fsync" else MOST_SESSIONS)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._server.close()


async def connect(url: str) -> RedisStore:
    """Open ``redis://host:port/db``, ``redis+unix:///path`` or ``redis+cluster://host:port``."""
    target = parsed(url)
    server = Server(target)
    try:
        found = await settings(server, target)
        await claim_layout(server)
    except BaseException:
        await server.close()
        raise
    return RedisStore(server, target, found)
