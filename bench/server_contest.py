"""Who takes part in the server benches: whoever appends to sessions on a server, alone or many at once.

All of one server share its settings, so an acknowledgement means the same for everybody; each says them
as its own connection was told.
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
        """Write messages one by one until the time is over, at least one; give the time of each."""
        ...

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let every client write its own part of a book to its session, all at once; give the time."""
        ...

    def end(self) -> None:
        """Let go of everything."""
        ...


def told(settings: Mapping[str, str]) -> str:
    """Write settings in a few words."""
    names = (*POSTGRES_SETTINGS, *REDIS_SETTINGS)
    return ", ".join(f"{name} {settings[name]}" for name in names if name in settings)


def session_name(place: Place) -> str:
    """Give a session a name of its own on a server: what would be a file is the first part of it."""
    return f"{place.file} {place.session}"
