"""Raw SQLite as a contestant: the cost of the same bytes if nothing else is done with them.

`Raw` is a plain table with one insert per transaction, without any checks: the lower limit. Writing to a WAL
that has its final size from the start is faster than to one that grows, and ours soon has its final size, so
there is a `Raw` of either kind. `Bare` writes exactly the rows that Turnstate writes, to its schema, in a
loop without checks, threads or an event loop; it also immediately writes the words that Turnstate indexes
later. Its rows are prepared in advance, or made from messages on the way: encoded, counted, split into words.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec import structs

from turnstate import Message, SessionManager
from turnstate.codec import decode_entry
from turnstate.context.policy import Policy
from turnstate.log.records import _records
from turnstate.search_terms import words_of
from turnstate.stores.sqlite.connection import connect
from turnstate.stores.sqlite.queries import SQL
from turnstate.stores.sqlite.rows import advance_columns, entry_values, session_row
from turnstate.stores.sqlite.wal import fill_log
from turnstate.stores.values import Address, Record
from turnstate.tokens import counter

from .session_contest import Place, Portion, Settings
from .session_messages import Book

T = TypeVar("T")
Made = tuple[Record, str | None]

_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
_TABLE = (
    "CREATE TABLE IF NOT EXISTS message (key INTEGER PRIMARY KEY, session TEXT NOT NULL, body BLOB NOT NULL)"
)
_INSERT = "INSERT INTO message (session, body) VALUES (?, ?)"
_NEWEST = "SELECT body FROM message WHERE session = ? ORDER BY key DESC LIMIT ?"


def settings_of(db: apsw.Connection) -> Settings:
    """Read the settings of a connection."""
    return Settings(
        str(db.pragma("journal_mode")),
        _LEVELS[int(db.pragma("synchronous"))],
        apsw.sqlite_lib_version(),
    )


class Raw:
    """A plain table of bodies; with `grown`, the WAL has its final size from the start."""

    def __init__(self, folder: Path, *, grown: bool = False) -> None:
        self.name = "raw on a grown WAL" if grown else "raw SQLite"
        self.folder, self._grown = folder, grown
        self._open = dict[str, apsw.Connection]()
        self.settings = settings_of(self._connection("settings"))

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in one transaction."""
        with self._connection(place.file) as db:
            db.executemany(_INSERT, [(place.session, body) for body in book.bodies[span.start : span.stop]])

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one, each in a transaction, until the time is up; return the time of each."""
        db, spent = self._connection(place.file), list[float]()
        until = time.perf_counter() + seconds
        for body in book.bodies[span.start : span.stop]:
            start = time.perf_counter()
            db.execute(_INSERT, (place.session, body))
            spent.append(time.perf_counter() - start)
            if time.perf_counter() > until:
                break
        return spent

    def read(self, place: Place, portion: Portion) -> float:
        """Reopen the file and fetch the newest bodies without decoding them; return the total time."""
        start = time.perf_counter()
        db = apsw.Connection(str(self.folder / place.file))
        db.execute(_NEWEST, (place.session, portion.messages)).fetchall()
        spent = time.perf_counter() - start
        db.close()
        return spent

    def newest(self, place: Place, count: int) -> float:
        """Fetch and decode the newest bodies of an open file; return the time."""
        db, start = self._connection(place.file), time.perf_counter()
        for (body,) in db.execute(_NEWEST, (place.session, count)):
            decode_entry("message", body)
        return time.perf_counter() - start

    def close(self, file: str) -> None:
        """Close a file."""
        if db := self._open.pop(file, None):
            db.close()

    def end(self) -> None:
        """Release everything."""
        for file in list(self._open):
            self.close(file)

    def _connection(self, file: str) -> apsw.Connection:
        if file not in self._open:
            db = self._open[file] = apsw.Connection(str(self.folder / file))
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "FULL")
            db.execute(_TABLE)
            if self._grown:
                fill_log(str(self.folder / file))
        return self._open[file]


class Bare:
    """A loop that writes what Turnstate writes."""

    def __init__(self, folder: Path, file: str, sessions: Iterable[str]) -> None:
        names = sorted(set(sessions))
        asyncio.run(_make_sessions(folder / file, names))
        self._db = connect(str(folder / file), write=True)
        self.settings = settings_of(self._db)
        self._sessions = {name: session_row(self._db, Address("default", name)) for name in names}

    def write(self, work: Sequence[tuple[str, T]], made: Callable[[T], Made], *, at_once: int) -> list[float]:
        """Write rows, `at_once` per transaction; return the time of each transaction."""
        spent = list[float]()
        for first in range(0, len(work), at_once):
            start = time.perf_counter()
            self._db.execute("BEGIN IMMEDIATE")
            for session, given in work[first : first + at_once]:
                self._add(session, made(given))
            self._db.execute("COMMIT")
            spent.append(time.perf_counter() - start)
        return spent

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _add(self, session: str, made: Made) -> None:
        record, words = made
        key, row = self._sessions[session]
        row = structs.replace(row, seq=row.seq + 1, total=row.total + record.tokens, version=row.version + 1)
        self._sessions[session] = key, row
        columns = entry_values(key, row.branch, row.seq, row.total, record)
        self._db.execute(SQL["add_entry"], columns)
        if words is not None:
            self._db.execute(SQL["add_words"], (self._db.last_insert_rowid(), words))
        self._db.execute(SQL["advance_session"], advance_columns(key, row, marks=0))


def recorder() -> Callable[[Message], Record]:
    """Return a function that makes a record of a message: it encodes and counts it."""
    count, policy = counter("o200k_base"), Policy()
    return lambda message: _records((message,), count, policy, short=False)[0]


def cutter() -> Callable[[Message], Made]:
    """Return a function that makes a record of a message, together with its words."""
    record = recorder()
    return lambda message: (record(message), " ".join(words_of(message)))


async def _make_sessions(path: Path, names: Sequence[str]) -> None:
    async with await SessionManager.open(f"sqlite:///{path}") as sessions:
        for name in names:
            await sessions.create(user="u", id=name)
