"""The memory store: the same promises as any other store, for as long as the process lives.

It is the plainest statement of what a store does, one module a port, over the state that they share.
Rows, branches and parcels are immutable, and the one dictionary that a session row holds is copied,
so what is handed out cannot change what is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...errors import InputError
from ..values import Durability, Finding, Recount
from .directory import MemoryDirectory
from .leases import MemoryLeases
from .log import MemoryLog
from .outbox import MemoryOutbox
from .state import State

__all__ = ["MemoryStore", "connect"]

_named: dict[str, MemoryStore] = {}


class MemoryStore(MemoryLog, MemoryDirectory, MemoryOutbox, MemoryLeases):
    """Sessions in dictionaries."""

    durability: Durability = "memory"

    def __init__(self) -> None:
        super().__init__(State())

    async def time(self) -> int | None:
        """Return None: there is no clock but the caller's."""
        return None

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
        with self._state.lock:
            sessions = list(self._state.sessions.values())
        entries = sum(len(kept.by_id) for kept in sessions)
        return {"store": "memory", "sessions": str(len(sessions)), "entries": str(entries)}

    async def scrub(self) -> bool:
        """Do nothing: there are no files."""
        return True

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check token counts if asked to; what is in memory cannot be damaged otherwise."""
        with self._state.lock:
            sessions = list(self._state.sessions.values()) if recount else []
            found = [one for kept in sessions if recount for one in kept.recount(recount, repair=repair)]
        for finding in found:
            yield finding

    async def close(self) -> None:
        """Keep everything: another handle of the same name may be open."""


async def connect(url: str) -> MemoryStore:
    """Open ``memory:`` for a store of one's own, ``memory:NAME`` for one that others of that name share."""
    name = url.removeprefix("memory:").strip("/")
    if "?" in name or "#" in name:
        raise InputError(f"{url!r} has settings that the memory store does not know")
    return _named.setdefault(name, MemoryStore()) if name else MemoryStore()
