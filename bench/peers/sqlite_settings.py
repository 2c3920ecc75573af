"""Reads from an SQLite connection how durable its commits are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


async def read(row: Callable[[str], Awaitable[Any]]) -> dict[str, str]:
    """Return the journal mode and the synchronous setting of a connection."""
    (version,) = await row("SELECT sqlite_version()")
    (journal,), (level,) = await row("PRAGMA journal_mode"), await row("PRAGMA synchronous")
    return {"journal": journal, "synchronous": _LEVELS[level], "sqlite": version}
