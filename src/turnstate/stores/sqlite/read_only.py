"""A store that can be read and not written: on a read-only disk, or in a folder that somebody else owns.

SQLite keeps a log of writes (``-wal``) and memory that processes share (``-shm``) beside a file, and cannot
create them here. So what there is decides how the file is read:

- with the shared memory: as usual. Somebody may be writing, through another mount of the same disk.
- with a log and no shared memory: somebody crashed, or the files are a copy. The log is read, without locks.
- with neither: nobody has the file open, and it is read as it is.

In the last two cases somebody may still begin to write, so the files are looked at before and after each
read. If they changed, the connection is opened anew and the read done again. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

import apsw

from ...errors import StoreError, StoreUnavailable
from .connection import Readers, check_readable, connect
from .faults import translated
from .writer import Writer

__all__ = ["FrozenReaders", "NoWriter", "is_read_only", "readers_of"]

T = TypeVar("T")
Stamp = tuple[tuple[int, int] | None, ...]

TRIES = 10
"""Reads of a file that somebody changes meanwhile, before it is given up."""


def is_read_only(path: str) -> bool:
    """Return whether a file is there that cannot be written, or whose side files cannot be created."""
    if not os.path.exists(path):
        return False
    if not os.access(path, os.W_OK):
        return True
    side = (f"{path}-wal", f"{path}-shm")
    return not (os.access(_folder(path), os.W_OK) or all(os.access(name, os.W_OK) for name in side))


def readers_of(path: str) -> Readers:
    """Return readers that suit how a file can be read."""
    return FrozenReaders(path) if is_read_only(path) else Readers(path)


class NoWriter(Writer):
    """Refuses every job."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Raise `StoreUnavailable`."""
        raise StoreUnavailable(
            f"{self._path} cannot be written: its disk is read-only, or file and folder belong to others"
        )

    run_alone = run

    def close(self) -> None:
        """Do nothing: nothing was begun."""


class FrozenReaders(Readers):
    """Runs queries on a file beside which nothing can be created."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        with translated(path):
            db, _ = _connect(path)
            try:
                check_readable(db, path)
            finally:
                db.close()

    def _read(self, job: Callable[[apsw.Connection], T]) -> T:
        for _ in range(TRIES):
            before = _stamp(self._path)
            if getattr(self._local, "stamp", before) != before:
                self._open.remove(self._local.db)
                self._local.db.close(True)
                self._local.db = None
            try:
                result = super()._read(job)
            except StoreError:
                if self._is_unchanged(before):
                    raise
                continue
            if self._is_unchanged(before):
                return result
        raise StoreUnavailable(f"{self._path} is being written by somebody else all the time; try again")

    def _is_unchanged(self, before: Stamp) -> bool:
        return getattr(self._local, "stamp", None) is None or _stamp(self._path) == before

    def _connection(self) -> apsw.Connection:
        db: apsw.Connection | None = getattr(self._local, "db", None)
        if db is None:
            stamp = _stamp(self._path)
            db, is_live = _connect(self._path)
            self._local.db, self._local.stamp = db, None if is_live else stamp
            self._open.append(db)
        return db


def _connect(path: str) -> tuple[apsw.Connection, bool]:
    """Open a connection, and return whether it sees by itself what others write."""
    if os.path.exists(f"{path}-shm"):
        return connect(path, write=False), True
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
        db = connect(path, write=False, vfs="unix-none")
        db.pragma("locking_mode", "EXCLUSIVE")  # so the index of the log is kept in memory of our own
        return db, False
    return connect(f"file:{quote(os.path.abspath(path))}?immutable=1", write=False, uri=True), False


def _stamp(path: str) -> Stamp:
    """Return what changes when somebody writes to a file."""
    found = list[tuple[int, int] | None]()
    for name in (path, f"{path}-wal", f"{path}-shm"):
        try:
            about = os.stat(name)
            found.append((about.st_size, about.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)


def _folder(path: str) -> str:
    return os.path.dirname(os.path.realpath(path))
