"""Memory engines by name: ``builtin`` and ``none`` are here, others are found by entry point.

A package offers an engine in the group ``turnstate.memory``: the name of the entry point is the name of
the engine, and its object is called with the text after the colon and awaited.

    [project.entry-points."turnstate.memory"]
    elsewhere = "my_package:connect"        # turnstate worker --engine elsewhere:ADDRESS
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import InputError, UnknownName
from ..models import Endpoint, endpoint_of
from ..stores.values import Address
from .port import Evicted, MemoryEngine, Recollection, SessionRecord, User

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "turnstate.memory"
BUILTIN = "builtin"
REMOVED = {"jsonl": "builtin:PATH, which keeps memory in one SQLite file"}
"""Engines of earlier versions, and what to use instead."""


Connect = Callable[[str], Awaitable[MemoryEngine]]


async def open_engine(name: str) -> MemoryEngine:
    """Open an engine by name; the text after the colon is its address."""
    check_engine(name)
    kind, _, address = name.partition(":")
    connect = _BUILT_IN.get(kind) or _installed(kind)
    return await connect(address)


def check_engine(name: str) -> None:
    """Raise `InputError` if no engine has the name, or the address is invalid; nothing is opened."""
    kind, _, address = name.partition(":")
    if kind == "none" and address:
        raise InputError(f"the engine none takes no address; got {address!r:.100}")
    if kind in _BUILT_IN or _entry_points(kind):
        return
    if kind in REMOVED:
        raise UnknownName(f"the memory engine {kind} was removed; use {REMOVED[kind]}")
    raise UnknownName(f"there is no memory engine {kind!r:.100}; known engines: {', '.join(known_engines())}")


def beside(store: str, name: str = BUILTIN) -> str:
    """Return an engine's name with its place; ``builtin`` without a place is put beside the store.

    Beside an SQLite file it is a separate file, beside a PostgreSQL schema a separate schema, and beside a
    store in memory it is in memory. A Redis server cannot keep memory, so the name must include a place.
    """
    kind, colon, settings = name.partition(":")
    if kind != BUILTIN or (colon and settings and not settings.startswith("?")):
        return name
    scheme = store.partition(":")[0]
    if scheme == "sqlite":
        path = Path(unquote(urlsplit(store).path).removeprefix("/"))
        return f"{BUILTIN}:{path.with_name(f'{path.stem}-memory.db')}{settings}"
    if scheme in ("postgresql", "postgres"):
        joined = store + ("&" if "?" in store else "?") + settings[1:] if settings else store
        return f"{BUILTIN}:{joined}"
    if scheme == "memory":
        return f"{BUILTIN}:{settings}"
    raise InputError(f"memory cannot be kept in {scheme}:; name a place, as in memory='builtin:memory.db'")


def endpoints(name: str) -> dict[str, Endpoint]:
    """Return where an engine sends what it is given, by what for, as far as its name says it."""
    kind, _, address = name.partition(":")
    asked = dict(parse_qsl(address.partition("?")[2])) if kind == BUILTIN else {}
    found = dict[str, Endpoint]()
    if extractor := asked.get("extractor"):
        found["extractor"] = endpoint_of(extractor)
    if (embedder := asked.get("embedder", "")).startswith("openai:"):
        model, at, url = embedder.removeprefix("openai:").partition("@")
        found["embedder"] = endpoint_of(f"{model}{at}{url}" if at else "openai")
    return found


def known_engines() -> list[str]:
    """Return the names of all engines."""
    return [*_BUILT_IN, *sorted({found.name for found in _entry_points()} - _BUILT_IN.keys())]


class NoEngine:
    """Remembers nothing: delivered messages are kept only in the log."""

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Do nothing."""

    async def ingest(self, record: SessionRecord) -> None:
        """Do nothing."""

    async def profile(self, user: User) -> str:
        """Return an empty profile."""
        return ""

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Return no results."""
        return []

    async def forget(self, whose: User | Address) -> int:
        """Return 0: there is nothing to remove."""
        return 0

    async def close(self) -> None:
        """Do nothing: nothing is open."""


async def _none(_address: str) -> MemoryEngine:
    return NoEngine()


async def _builtin(address: str) -> MemoryEngine:
    engine: MemoryEngine = await import_module(".builtin", __package__).connect(address)
    return engine


_BUILT_IN: dict[str, Connect] = {"none": _none, BUILTIN: _builtin}


def _entry_points(name: str | None = None) -> EntryPoints:
    from importlib.metadata import entry_points  # takes 10 ms, which most sessions do not need

    return entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)


def _installed(kind: str) -> Connect:
    point = next(iter(_entry_points(kind)))
    try:
        connect: Connect = point.load()
    except Exception as error:  # importing a package may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"the memory engine {point.name} ({point.value}) cannot be loaded: {reason}"
        ) from error
    return connect
