"""What the store says of itself: versions, settings, and what they are worth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..values import Address, Durability, Finding, Recount
from .checks.everything import verified
from .layout import BUCKETS, VERSION
from .search import MOST_LOOKED_AT
from .server import Server
from .settings import Settings, settings
from .target import Target
from .witness import Witness, look_for

__all__ = ["RedisHealth"]


class RedisHealth:
    """Facts for people, and a check of everything."""

    _server: Server
    _target: Target
    _settings: Sequence[Settings]
    _witness: Witness

    @property
    def durability(self) -> Durability:
        """What an acknowledgement meant when the store was opened."""
        return "best_effort" if any(one.shortcomings for one in self._settings) else "fsync"

    async def time(self) -> int | None:
        """Return the server's time in milliseconds; that of one master of a Cluster."""
        node, *_ = await self._server.nodes()
        seconds, rest = await self._server.ask("TIME", node=node)
        return int(seconds) * 1_000 + int(rest) // 1_000

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
        self._settings = found = await settings(self._server, self._target)

        def told(name: str) -> str:
            return ", ".join(sorted({str(getattr(one, name)) or "unknown" for one in found}))

        weak = sorted({reason for one in found for reason in one.shortcomings})
        return {
            "store": "redis",
            "server": self._server.name,
            told("program"): told("version"),
            "masters": str(len(found)),
            "replicas": str(sum(one.replicas for one in found)),
            "durability": f"{self.durability} ({'; '.join(weak)})" if weak else self.durability,
            "appendonly": told("appendonly"),
            "appendfsync": told("appendfsync"),
            "save": told("save"),
            "maxmemory": told("maxmemory"),
            "maxmemory_policy": told("maxmemory_policy"),
            "used_memory": told("used_memory"),
            "layout": str(VERSION),
            "buckets": str(BUCKETS),
            "search": f"the newest {MOST_LOOKED_AT:,} entries behind a mark",
        }

    async def scrub(self) -> bool:
        """Do nothing, and say so: what was removed stands in the server's files until it writes them anew.

        `BGREWRITEAOF` and `BGSAVE` do that; they cost as much as all data, so they are left to whoever runs
        the server, as are replicas and backups.
        """
        return False

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Walk everything, check order and checksums, and set damaged records aside if asked to.

        Where the server may lose what it acknowledged, also tell what this store knows to be missing.
        """
        await look_for(self._server, self._witness)
        for finding in self._witness.findings(repair=repair):
            yield finding
        async for finding in verified(self._server, repair=repair, recount=recount):
            if repair:
                self._witness.forget(Address(finding.tenant, finding.session))
            yield finding
