"""The interface of the contestants in the session benchmarks, and how they take turns.

A contestant keeps sessions in files of one folder, or on a server. It appends the messages of a book one by
one and returns the time of each; it reopens a session and reads what a request needs. Times are wall-clock
times, since durability means waiting. Contestants take short turns, so a slow minute of the machine affects
all of them.
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
"""Seconds after which a contestant gets no more turns in a case, and its minimum number of timings."""

Case = TypeVar("Case", bound=Hashable)


class Place(NamedTuple):
    """A session in a file."""

    file: str
    session: str = "bench"


class Portion(NamedTuple):
    """How much of a session to read: a budget for Turnstate, and for others as many messages as it yields."""

    budget: int
    messages: int


class Settings(Struct, frozen=True):
    """The durability of a commit, as the writing connection reports it, and the version of SQLite."""

    journal: str
    synchronous: str
    sqlite: str

    @property
    def are_full(self) -> bool:
        """True if an acknowledged write survives a power failure: FULL or more."""
        return self.synchronous in ("FULL", "EXTRA")

    def __str__(self) -> str:
        return f"{self.journal.upper()} {self.synchronous}"


class Contestant(Protocol):
    """Keeps sessions."""

    name: str

    @property
    def settings(self) -> object:
        """The durability of a write, for display."""
        ...

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in one or a few steps."""
        ...

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        ...

    def read(self, place: Place, portion: Portion) -> float:
        """Reopen a session and read what a request needs; return the total time."""
        ...

    def close(self, file: str) -> None:
        """Close a file."""
        ...

    def end(self) -> None:
        """Release everything."""
        ...


class Windowing(Contestant, Protocol):
    """A contestant that builds windows for a budget: Turnstate."""

    def window(self, place: Place, budget: int) -> tuple[int, bool]:
        """Build a window; return its number of messages, and whether a cut was made and recorded."""
        ...


class OnDisk(Contestant, Protocol):
    """A contestant that keeps sessions in SQLite files of a folder."""

    folder: Path

    @property
    def settings(self) -> Settings:
        """The durability of a commit."""
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
    gc.freeze()  # the collector need not scan what the benchmark keeps
    for number in range(rounds):
        for case in listed:
            for name in contestants:
                so_far = spent[name, case]
                if sum(so_far) < enough or len(so_far) < LEAST:
                    so_far += run(name, case, number)
    gc.unfreeze()
    return spent


def medians(spent: dict[tuple[str, Case], list[float]]) -> dict[tuple[str, Case], float]:
    """Return the median of every series."""
    return {key: statistics.median(series) for key, series in spent.items() if series}


def disk_bytes(folder: Path, file: str) -> int:
    """Return the size of a database, including its log and other files next to it."""
    return sum(one.stat().st_size for one in folder.glob(f"{file}*"))


def file_system(folder: Path, mounts: str) -> tuple[str, str]:
    """Return the device and the type of a folder's file system, from a table of mounts."""
    rows = [line.split() for line in mounts.splitlines() if len(line.split()) >= 3]
    holding = [(device, point, kind) for device, point, kind, *_ in rows if folder.is_relative_to(point)]
    if not holding:
        return "?", "?"
    device, _, kind = max(holding, key=lambda row: len(row[1]))
    return device, kind
