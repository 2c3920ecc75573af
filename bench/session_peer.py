"""Peers in the session benchmarks: what each is asked, and where it keeps its sessions.

A peer measures its times itself, so they do not include the communication with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .peer_process import PeerProcess, Script
from .session_contest import Place, Portion, Settings
from .session_messages import Book

SCRIPTS = {
    "openai-agents": Script("openai_sessions", "openai-agents", ("openai-agents",)),
    "LangGraph": Script("langgraph_saver", "langgraph", ("langgraph", "langgraph-checkpoint-sqlite")),
}


class Peer:
    """A peer that keeps sessions; subclasses say where."""

    def __init__(self, name: str, script: Script, *arguments: str) -> None:
        self.name = name
        self._process = PeerProcess(script, *arguments)
        self.versions = self._process.versions

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in one step."""
        self._asked("fill", **self._where(place), **_part(book, span))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        limit = min(seconds, 1e9)
        found: list[float] = self._asked("append", **self._where(place), **_part(book, span), seconds=limit)
        return found

    def read(self, place: Place, portion: Portion) -> float:
        """Reopen a session and read its newest messages; return the total time."""
        return float(self._asked("read", **self._where(place), count=portion.messages))

    def newest(self, place: Place, count: int) -> float:
        """Read the newest messages of an open session; return the time."""
        return float(self._asked("newest", **self._where(place), count=count))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book to their session; return the time."""
        found = [self._where(place) for place in places]
        path, sessions = found[0]["path"], [one["session"] for one in found]
        each = len(book.messages) // len(places)
        return float(self._asked("clients", path=path, sessions=sessions, file=book.path, each=each))

    def close(self, file: str) -> None:
        """Close a file."""
        self._asked("close", path=self._where(Place(file))["path"])

    def end(self) -> None:
        """End the peer process."""
        self._process.end()

    def _where(self, place: Place) -> dict[str, str]:
        """Return the path and the session as the peer expects them."""
        raise NotImplementedError

    def _settings(self) -> dict[str, str]:
        place = Place("settings")
        found: dict[str, str] = self._asked("settings", **self._where(place))
        self.close(place.file)
        return found

    def _asked(self, what: str, **question: Any) -> Any:
        return self._process.ask({"do": what, **question})


class FilePeer(Peer):
    """A peer that keeps sessions in SQLite files of a folder."""

    def __init__(self, name: str, folder: Path, *, full: bool = False) -> None:
        self.folder = folder / (name + "-full" * full)
        self.folder.mkdir(exist_ok=True)
        super().__init__(f"{name}, FULL" if full else name, SCRIPTS[name], *["full"] * full)
        self.settings = Settings(**self._settings())

    def _where(self, place: Place) -> dict[str, str]:
        return {"path": str(self.folder / place.file), "session": place.session}


def _part(book: Book, span: range) -> dict[str, Any]:
    return {"file": book.path, "first": span.start, "last": span.stop}
