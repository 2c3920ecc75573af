"""The interface of the contestants in the session benches, and how they take turns.

A contestant keeps sessions in files of one folder, or on a server. It appends messages of a book one
by one and gives the time of each; it opens a session again and reads what a request needs. The wall
clock counts, since durable means waiting. Contestants take short turns, so a slow minute of the machine
is everyone's.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct

from .session_messages import Book

ENOUGH, LEAST = 4.0, 3
"""Seconds after which one contestant in one case has shown what it can, and how often it has to."""

Case = TypeVar("Case", bound=Hashable)


class Place(NamedTuple):
    """A session in a file."""

    file: str
    session: str = "bench"


class Portion(NamedTuple):
    """What is read of a session: for us a budget, for others the messages that it came to."""

    budget: int
    messages: int


class Settings(Struct, frozen=True):
    """How durable a commit is, as the connection that writes says, and whose SQLite it is."""

    journal: str
    synchronous: str
    sqlite: str

    @property
    def are_full(self) -> bool:
        """True if an acknowledged write survives the power: FULL, or more."""
        return self.synchronous in ("FULL", "EXTRA")

    def __str__(self) -> str:
        return f"{self.journal.upper()} {self.synchronous}"


class Contestant(Protocol):
    """Keeps sessions."""

    name: str

    @property
    def settings(self) -> object:
        """How durable a write is, for people."""
        ...

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages at once."""
        ...

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is over, at least one; return the time of each."""
        ...

    def read(self, place: Place, portion: Portion) -> float:
        """Open a session again and read what a request needs; return the time of both."""
        ...

    def close(self, file: str) -> None:
        """Close a file."""
        ...

    def end(self) -> None:
        """Release everything."""
        ...


class Windowing(Contestant, Protocol):
    """Makes windows by a budget: that is we."""

    def window(self, place: Place, budget: int) -> tuple[int, bool]:
        """Make a window; return its messages, and whether a cut was made and recorded."""
        ...


class OnDisk(Contestant, Protocol):
    """Keeps sessions in SQLite files of a folder."""

    folder: Path

    @property
    def settings(self) -> Settings:
        """How durable a commit is."""
        ...


def taking_turns(
    contestants: Sequence[str],
    cases: Iterable[Case],
    rounds: int,
    run: Callable[[str, Case, int], list[float]],
    *,
    enough: float | None = None,
) -> dict[tuple[str, Case], list[float]]:
    """Run every case of all contestants repeatedly, in turns; slow ones run only a few times."""
    listed, enough = list(cases), ENOUGH if enough is None else enough
    spent: dict[tuple[str, Case], list[float]] = {(name, case): [] for name in contestants for case in listed}
    gc.collect()
    gc.freeze()  # what is kept for the bench is no business of the collector's
    for number in range(rounds):
        for case in listed:
            for name in contestants:
                so_far = spent[name, case]
                if sum(so_far) < enough or len(so_far) < LEAST:
                    so_far += run(name, case, number)
    gc.unfreeze()
    return spent


def medians(spent: dict[tuple[str, Case], list[float]]) -> dict[tuple[str, Case], float]:
    """Return the middle of every series."""
    return {key: statistics.median(series) for key, series in spent.items() if series}


def disk_bytes(folder: Path, file: str) -> int:
    """Return the size of a database with its log and whatever else lies beside it."""
    return sum(one.stat().st_size for one in folder.glob(f"{file}*"))


def file_system(folder: Path, mounts: str) -> tuple[str, str]:
    """Find in a table of mounts the device and the kind of file system that a folder is on."""
    rows = [line.split() for line in mounts.splitlines() if len(line.split()) >= 3]
    holding = [(device, point, kind) for device, point, kind, *_ in rows if folder.is_relative_to(point)]
    if not holding:
        return "?", "?"
    device, _, kind = max(holding, key=lambda row: len(row[1]))
    return device, kind
