"""The interface of the contestants in the server benchmarks: append to sessions, with one client or many.

All contestants on a server use its settings, so an acknowledgement means the same for all of them; each
reports the settings of its own connection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from .session_contest import Place
from .session_messages import Book

POSTGRES_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes")
REDIS_SETTINGS = ("appendonly", "appendfsync")


class Writer(Protocol):
    """Appends to sessions on a server."""

    name: str

    @property
    def settings(self) -> str:
        """The durability of a write, as reported by the connection."""
        ...

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        ...

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book to their session; return the time."""
        ...

    def end(self) -> None:
        """Release everything."""
        ...


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as a short text."""
    names = (*POSTGRES_SETTINGS, *REDIS_SETTINGS)
    return ", ".join(f"{name} {settings[name]}" for name in names if name in settings)


def session_name(place: Place) -> str:
    """Return the name of a session on a server; it begins with the name of its file."""
    return f"{place.file} {place.session}"
