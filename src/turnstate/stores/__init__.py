"""Stores keep sessions. A new one is a package here and a line in the registry."""

from __future__ import annotations

from importlib import import_module

from ..errors import UnknownName
from .port import Store

__all__ = ["STORES", "connect"]

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
}
"""The scheme of a URL, and the package whose ``connect`` opens it."""


async def connect(url: str) -> Store:
    """Open the store at a URL; it is created if it is missing and can be created."""
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in STORES:
        known = ", ".join(f"{name}:" for name in STORES)  # the rest of a URL may hold a password
        raise UnknownName(f"no store has the scheme {scheme!r:.40}; a URL begins with one of {known}")
    store: Store = await import_module(f".{STORES[scheme]}", __name__).connect(url)
    return store
