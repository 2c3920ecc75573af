"""Where the original's conversations come from: a file that it saved, or rows of its database.

A database is opened for reading alone, and nothing is made beside it where that can be helped: one in WAL
mode that has no log beside it is nobody's at the moment, and is read as it lies there. It is foreign: its
schema may hold views that never end, so only a plain table is read, and every query has a limit of work.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

from ..conversation.original.reading import LARGEST
from ..errors import InputError, NotFound
from . import screen
from .lines import readable
from .source import STDIN

__all__ = ["Found", "found"]

MAGIC = b"SQLite format 3\0"
WAL = 2  # what the byte behind the magic, its page size and its read version say
MOST_SHOWN = 5

MAX_CONVERSATIONS = 100_000
MAX_STEPS = 2_000_000_000
"""Instructions of SQLite's virtual machine in one query: far more than reading any real database takes."""

_STEPS = 100_000  # after which SQLite asks whether to go on: about a millisecond


class Found(NamedTuple):
    """A conversation as it was found: what to call it, where it stands, and how to take its bytes."""

    title: str
    where: str
    take: Callable[[], bytes]


@contextmanager
def found(path: str, *, key: str | None, everything: bool) -> Iterator[tuple[int, Iterator[Found]]]:
    """Find the conversations of a file, and how many there are; of a database that of one folder, or all."""
    if path != "-" and _is_database(path):
        with _opened(path) as database:
            chosen = _chosen(path, _keys(path, database), key, everything)
            yield len(chosen), (_row(path, database, one) for one in chosen)
        return
    if key is not None or everything:
        raise InputError(f"{path}: --key and --all are for a database, and this is none")
    yield 1, iter([_file(path)])


def _is_database(path: str) -> bool:
    with readable(path), open(path, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _file(path: str) -> Found:
    name = STDIN if path == "-" else path
    return Found(os.path.basename(name), name, partial(_bytes, path))


def _bytes(path: str) -> bytes:
    if path != "-":
        with readable(path), open(path, "rb") as stream:
            return stream.read(LARGEST + 1)
    if sys.stdin is None:
        raise InputError("closed; name a file instead")
    return sys.stdin.buffer.read(LARGEST + 1)


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    with _told(path):
        database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{_mode(path)}", uri=True)
    with closing(database):
        database.text_factory = bytes
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + 1)
        database.execute("PRAGMA trusted_schema = OFF")
        yield database


def _mode(path: str) -> str:
    with readable(path), open(path, "rb") as stream:
        in_wal_mode = stream.read(20)[19:] == bytes([WAL])
    return "immutable=1" if in_wal_mode and not os.path.exists(f"{path}-wal") else "mode=ro"


def _keys(path: str, database: sqlite3.Connection) -> list[str]:
    tables = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'conversations' AND rootpage > 0"
    if not _rows(path, database, tables):
        raise InputError(f"{path}: has no table of conversations; is it the database of the Q command line?")
    keys = "SELECT key FROM conversations ORDER BY key LIMIT ?"
    rows = _rows(path, database, keys, MAX_CONVERSATIONS + 1)
    if len(rows) > MAX_CONVERSATIONS:
        raise InputError(f"{path}: holds more than {MAX_CONVERSATIONS:,} conversations; import it in parts")
    return [_text(key) for (key,) in rows]


def _chosen(path: str, keys: Sequence[str], key: str | None, everything: bool) -> Sequence[str]:
    if everything:
        return keys
    if key is not None:
        return [_named(path, keys, key)]
    if len(keys) != 1:
        raise InputError(f"{path}: holds {_listed(keys)}; say which with --key DIR, or --all")
    return keys


def _named(path: str, keys: Sequence[str], key: str) -> str:
    """Give the folder that is meant, however it is written."""
    for spelling in (key, os.path.abspath(key), os.path.realpath(key)):
        if spelling in keys:
            return spelling
    raise NotFound(f"{path}: no conversation of {key}; there are {_listed(keys)}")


def _listed(keys: Sequence[str]) -> str:
    count = screen.counted(len(keys), "conversation")
    more = f" and {len(keys) - MOST_SHOWN:,} more" if len(keys) > MOST_SHOWN else ""
    return f"{count} ({', '.join(keys[:MOST_SHOWN])}{more})" if keys else "no conversations"


def _row(path: str, database: sqlite3.Connection, key: str) -> Found:
    return Found(key, f"{path}, {key}", partial(_value, path, database, key))


def _value(path: str, database: sqlite3.Connection, key: str) -> bytes:
    rows = _rows(path, database, "SELECT value FROM conversations WHERE key = ? LIMIT 1", key)
    value = rows[0][0] if rows else None
    if not isinstance(value, bytes):
        raise InputError("the row holds no text")
    return value


def _rows(path: str, database: sqlite3.Connection, query: str, *given: str | int) -> list[tuple[object, ...]]:
    """Run a query that stops after so much work, whatever the schema makes of it."""
    steps = iter(range(MAX_STEPS // _STEPS))
    database.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
    with _told(path):
        return database.execute(query, given).fetchall()


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise InputError(f"{path}: cannot be read: a query does not come to an end") from None
        advice = "is it the database of the Q command line, and no other program writes to it?"
        raise InputError(f"{path}: cannot be read: {error}; {advice}") from None
