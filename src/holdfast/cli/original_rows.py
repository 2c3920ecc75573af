"""Where the original's conversations come from: a file that it saved, or rows of its database.

A database is opened for reading alone, and nothing is made beside it where that can be helped: one in WAL
mode that has no log beside it is nobody's at the moment, and is read as it lies there.
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
        yield database


def _mode(path: str) -> str:
    with readable(path), open(path, "rb") as stream:
        in_wal_mode = stream.read(20)[19:] == bytes([WAL])
    return "immutable=1" if in_wal_mode and not os.path.exists(f"{path}-wal") else "mode=ro"


def _keys(path: str, database: sqlite3.Connection) -> list[str]:
    with _told(path):
        rows = database.execute("SELECT key FROM conversations ORDER BY key").fetchall()
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
    query = "SELECT value FROM conversations WHERE key = ?"
    with _told(path):
        (value,) = database.execute(query, [key]).fetchone() or (None,)
    if not isinstance(value, bytes):
        raise InputError("the row holds no text")
    return value


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        advice = "is it the database of the Q command line, and no other program writes to it?"
        raise InputError(f"{path}: cannot be read: {error}; {advice}") from None
