"""A store that cannot be written to: on a read-only disk, or in a folder of another user.

SQLite keeps a WAL (``-wal``) and shared memory (``-shm``) next to a file, and cannot create them here. How
the file is read depends on which of them exist:

- shared memory: as usual. Another process may be writing, through another mount of the same disk.
- a WAL without shared memory: a process crashed, or the files are a copy. The WAL is read without locks.
- neither: no process has the file open, and it is read as it is.

In the last two cases another process may still start to write, so the files are compared before and after
each read. If they changed, the connection is reopened and the read repeated. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import quote

import apsw

from ...errors import StoreError, StoreUnavailable
from ..values import Change, Receipt
from .connection import Connection, check_readable, connect
from .faults import translated
from .readers import Readers
from .wal import beside, has_log
from .writer import Writer

T = TypeVar("T")
FileStamp = tuple[tuple[int, int] | None, ...]

MAX_TRIES = 10
"""How often a read is tried while the file keeps changing."""


def is_read_only(path: str) -> bool:
    """Return True if a file exists but cannot be written, or its side files cannot be created."""
    if not os.path.exists(path):
        return False
    if not os.access(path, os.W_OK):
        return True
    if os.access(_folder(path), os.W_OK):
        return False
    return not all(os.access(beside(path, side), os.W_OK) for side in ("-wal", "-shm"))


def readers_of(path: str) -> Readers:
    """Return readers for a file, writable or not."""
    return FrozenReaders(path) if is_read_only(path) else Readers(path)


class NoWriter(Writer):
    """Refuses every job."""

    def __init__(self, path: str) -> None:
        self._path = path

    def commit(self, change: Change) -> Awaitable[Receipt]:
        """Raise `StoreUnavailable`."""
        raise self._refusal

    def run(self, job: Callable[[Connection], T]) -> Awaitable[T]:
        """Raise `StoreUnavailable`."""
        raise self._refusal

    run_alone = run

    @property
    def _refusal(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._path} cannot be written: its disk is read-only, or it belongs to another user"
        )

    def start(self) -> None:
        """Do nothing."""

    close = start


class FrozenReaders(Readers):
    """Runs queries on a file whose side files cannot be created."""

    def __init__(self, path: str) -> None:
        super().__init__(path, in_loop=False)  # a read may have to be repeated
        with translated(path):
            db, _ = _connect(path)
            try:
                check_readable(db, path)
            finally:
                db.close()

    def _read(self, job: Callable[[apsw.Connection], T]) -> T:
        for _ in range(MAX_TRIES):
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
        raise StoreUnavailable(f"{self._path} is constantly being written by another process; try again")

    def _is_unchanged(self, before: FileStamp) -> bool:
        return getattr(self._local, "stamp", None) is None or _stamp(self._path) == before

    def _connection(self) -> Connection:
        db: Connection | None = getattr(self._local, "db", None)
        if db is None:
            stamp = _stamp(self._path)
            db, is_live = _connect(self._path)
            self._local.db, self._local.stamp = self._kept(db), None if is_live else stamp
        return db


def _connect(path: str) -> tuple[Connection, bool]:
    """Open a connection; return it with True if it sees the writes of other processes."""
    if os.path.exists(beside(path, "-shm")):
        return connect(path, write=False), True
    if has_log(path):
        db = connect(path, write=False, vfs="unix-none")
        db.pragma("locking_mode", "EXCLUSIVE")  # keeps the WAL index in private memory
        return db, False
    return connect(path, write=False, uri=f"file:{quote(os.path.abspath(path))}?immutable=1"), False


def _stamp(path: str) -> FileStamp:
    """Return the sizes and modification times of the files, which change with every write."""
    found = list[tuple[int, int] | None]()
    for name in (path, beside(path, "-wal"), beside(path, "-shm")):
        try:
            about = os.stat(name)
            found.append((about.st_size, about.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)


def _folder(path: str) -> str:
    """Return the folder in which SQLite creates the side files; for a link, the folder of its target."""
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path) or os.curdir
