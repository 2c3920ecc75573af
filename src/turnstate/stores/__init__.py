"""Stores keep sessions. To add one, create a package here and add a line to `STORES`."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from ..errors import InputError, UnknownName
from .port import Store

__all__ = ["STORES", "connect", "connect_to_read"]

STORES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "redis+unix": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "valkey+unix": "redis",
    "valkey+cluster": "redis",
    "valkeys+cluster": "redis",
}
"""URL schemes, each with the package whose ``connect`` opens it."""


async def connect(url: str) -> Store:
    """Open the store at a URL, and create it if it is missing and can be created."""
    store: Store = await _package(url).connect(url)
    return store


async def connect_to_read(url: str) -> Store:
    """Open the store at a URL for a program that only reads; an SQLite file then keeps its WAL as it is."""
    package = _package(url)
    store: Store = await getattr(package, "connect_to_read", package.connect)(url)
    return store


def _package(url: str) -> ModuleType:
    if not isinstance(url, str):
        raise InputError(
            f"the URL of a store must be text, not {type(url).__name__}; for an SQLite file, "
            "write sqlite:///PATH"
        )
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in STORES:
        raise UnknownName(f"no store has the scheme {scheme!r:.40}; {_advice(url, scheme)}")
    return import_module(f".{STORES[scheme]}", __name__)


def _advice(url: str, scheme: str) -> str:
    """Return what to write instead; repeat only a plain path, since a URL may contain a password."""
    if ":" not in url and "@" not in url:
        return f"for an SQLite file, write sqlite:///{url:.200}"
    if close := get_close_matches(scheme, STORES, n=1):
        return f"did you mean {close[0]}:?"
    return f"a URL begins with one of {', '.join(f'{name}:' for name in STORES)}"
