"""Engines by name: ``none`` and ``jsonl:PATH`` are built in, others are found by entry point.

A package offers an engine under the group ``turnstate.memory``: the name of the entry point is the name
of the engine, and what it points to is called with what stands behind the colon, and awaited.

    [project.entry-points."turnstate.memory"]
    elsewhere = "my_package:connect"        # turnstate worker --engine elsewhere:ADDRESS
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import EntryPoint, entry_points

from ..errors import InputError, UnknownName
from ..stores.values import Address
from .jsonl import JsonlEngine
from .port import Evicted, MemoryEngine, Recollection, SessionRecord, User

__all__ = ["GROUP", "NoEngine", "known_engines", "open_engine"]

GROUP = "turnstate.memory"

Connect = Callable[[str], Awaitable[MemoryEngine]]


async def open_engine(name: str) -> MemoryEngine:
    """Open the engine that goes by a name, with what stands behind the colon as its address."""
    kind, _, address = name.partition(":")
    connect = _BUILT_IN.get(kind) or _plugged_in(kind)
    return await connect(address)


def known_engines() -> list[str]:
    """Name the engines that there are."""
    return [*_BUILT_IN, *sorted({found.name for found in entry_points(group=GROUP)} - _BUILT_IN.keys())]


class NoEngine:
    """Remembers nothing: what is delivered to it is gone, and the log alone keeps it."""

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Take it and keep nothing."""

    async def ingest(self, record: SessionRecord) -> None:
        """Take it and keep nothing."""

    async def profile(self, user: User) -> str:
        """Know nobody."""
        return ""

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Find nothing."""
        return []

    async def forget(self, whose: User | Address) -> int:
        """Have nothing to remove."""
        return 0

    async def close(self) -> None:
        """Hold nothing open."""


async def _none(address: str) -> MemoryEngine:
    if address:
        raise InputError(f"the engine none takes no address, and got {address!r:.100}")
    return NoEngine()


async def _jsonl(address: str) -> MemoryEngine:
    if not address:
        raise InputError("the engine jsonl needs a folder: jsonl:PATH")
    return await asyncio.to_thread(JsonlEngine, address)


_BUILT_IN: dict[str, Connect] = {"none": _none, "jsonl": _jsonl}


def _plugged_in(kind: str) -> Connect:
    found = next(iter(entry_points(group=GROUP, name=kind)), None)
    if found is None:
        raise UnknownName(f"no memory engine is called {kind!r:.100}; there are {', '.join(known_engines())}")
    return _loaded(found)


def _loaded(point: EntryPoint) -> Connect:
    try:
        connect: Connect = point.load()
    except Exception as error:  # whatever importing somebody else's package may raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"the memory engine {point.name} ({point.value}) cannot be loaded: {reason}"
        ) from error
    return connect
