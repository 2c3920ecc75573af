"""Stores: where sessions are kept. A new one is a folder here and a line in the registry."""

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
"""The scheme of a URL, and the folder whose ``connect`` opens it."""


async def connect(url: str) -> Store:
    """Open the store behind a URL; it is made where it does not exist and can be."""
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in STORES:
        known = ", ".join(f"{name}:" for name in STORES)  # the rest of a URL may hold a password
        raise UnknownName(f"no store goes by {scheme!r:.40}; a URL begins with one of {known}")
    store: Store = await import_module(f".{STORES[scheme]}", __name__).connect(url)
    return store
