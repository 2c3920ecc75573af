"""The interface of the contestants in the server benches: append to sessions, one client or many.

All contestants on one server use its settings, so an acknowledgement means the same for all; each
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
        """How durable a write is, as its connection says."""
        ...

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is over, at least one; return the time of each."""
        ...

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let every client write its own part of a book to its session, all at once; return the time."""
        ...

    def end(self) -> None:
        """Release everything."""
        ...


def settings_text(settings: Mapping[str, str]) -> str:
    """Write settings in a few words."""
    names = (*POSTGRES_SETTINGS, *REDIS_SETTINGS)
    return ", ".join(f"{name} {settings[name]}" for name in names if name in settings)


def session_name(place: Place) -> str:
    """Return the name of a session on a server: the path of its file comes first."""
    return f"{place.file} {place.session}"
