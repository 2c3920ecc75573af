"""What the store says of itself: versions, settings, sizes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing

import apsw

from ..values import Durability, Finding, Recount
from .readers import Readers
from .removal import scrub
from .verification import findings
from .writer import Writer

__all__ = ["SqliteHealth"]

_SYNC = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SqliteHealth:
    """Facts for people, and a check of everything."""

    durability: Durability = "fsync"
    path: str
    read_only: bool
    _writer: Writer
    _readers: Readers

    async def time(self) -> int | None:
        """Return None: a file has no clock but that of the machine that opens it."""
        return None

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
        if self.read_only:
            return await self._readers.run(self._facts)
        return await self._writer.run_alone(self._facts)

    async def scrub(self) -> bool:
        """Overwrite what deleted sessions left in files; tell whether no byte is left in them."""
        return await self._writer.run_alone(scrub)

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Walk everything, check order and checksums, and set damaged records aside if asked to."""
        async with aclosing(findings(self.path, self._writer, repair=repair, recount=recount)) as found:
            async for finding in found:
                yield finding

    def _facts(self, db: apsw.Connection) -> dict[str, str]:
        sizes = [os.path.getsize(name) for name in (self.path, f"{self.path}-wal") if os.path.exists(name)]
        writing = {
            "journal_mode": str(db.pragma("journal_mode")),
            "synchronous": _SYNC[int(db.pragma("synchronous"))],
            "secure_delete": "ON" if db.pragma("secure_delete") == 1 else "OFF",
        }
        return {
            "store": "sqlite",
            "path": os.path.abspath(self.path),
            "sqlite": apsw.sqlite_lib_version(),
            **({"access": "read-only"} if self.read_only else writing),
            "schema": str(db.pragma("user_version")),
            "bytes": f"{sum(sizes):,}",
        }
