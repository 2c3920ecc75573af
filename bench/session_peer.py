"""Peers of the session benches, each in an environment and a process of its own.

A peer is asked one question at a time over its standard input, so while it works nobody else does.
Its times are its own, without the way there and back.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

from .session_contest import Place, Portion, Settings
from .session_messages import Book
from .window_peer import PeerMissing

ROOT = Path(__file__).parents[1]

SCRIPTS = {
    "openai-agents": ("openai_sessions", ("openai-agents",)),
    "LangGraph": ("langgraph_saver", ("langgraph", "langgraph-checkpoint-sqlite")),
}


class Peer:
    """A peer at work."""

    def __init__(self, name: str, folder: Path, *, full: bool = False) -> None:
        script, packages = SCRIPTS[name]
        self.folder = folder / (name + "-full" * full)
        self.folder.mkdir(exist_ok=True)
        self.name = f"{name}, FULL" if full else name
        command: list[str | Path] = [_python(name, packages), "-m", f"bench.peers.{script}"]
        command += ["full"] * full
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT, env=environment
        )
        self.versions: dict[str, str] = self._answer()
        found = self._asked("settings", **self._place(Place("settings")))
        self.settings = Settings(found["journal"], found["synchronous"], found["sqlite"])
        self.close("settings")

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages at once."""
        self._asked("fill", **self._place(place), **_part(book, span))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is over, at least one; give the time of each."""
        limit = min(seconds, 1e9)
        found: list[float] = self._asked("append", **self._place(place), **_part(book, span), seconds=limit)
        return found

    def read(self, place: Place, portion: Portion) -> float:
        """Open a session anew and read its newest messages; give the time of both."""
        return float(self._asked("read", **self._place(place), count=portion.messages))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let every client write its own part of a book to its session, all at once; give the time."""
        path, sessions = self._path(places[0].file), [place.session for place in places]
        each = len(book.messages) // len(places)
        return float(self._asked("clients", path=path, sessions=sessions, file=book.path, each=each))

    def close(self, file: str) -> None:
        """Let go of a file."""
        self._asked("close", path=self._path(file))

    def end(self) -> None:
        """Let the peer go."""
        self._process.communicate()

    def _path(self, file: str) -> str:
        return str(self.folder / file)

    def _place(self, place: Place) -> dict[str, str]:
        return {"path": self._path(place.file), "session": place.session}

    def _asked(self, what: str, **question: Any) -> Any:
        if self._process.stdin:
            self._process.stdin.write(json.dumps({"do": what, **question}) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            error = self._process.communicate()[1]
            raise PeerMissing(f"{self.name} failed: {error.strip()[-300:]}")
        return json.loads(line)


def _part(book: Book, span: range) -> dict[str, Any]:
    return {"file": book.path, "first": span.start, "last": span.stop}


def _python(name: str, packages: tuple[str, ...]) -> Path:
    """Make the peer's environment where there is none."""
    home = ROOT / ".bench" / name.lower()
    python, made = home / "bin" / "python", home / ".installed"
    if made.exists():
        return python
    install = ("pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    for command in ((sys.executable, "-m", "venv", "--clear", str(home)), (str(python), "-m", *install)):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise PeerMissing(f"{name} cannot be installed: {done.stderr.strip()[-300:]}")
    made.touch()
    return python
