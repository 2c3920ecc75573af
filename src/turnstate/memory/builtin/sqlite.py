"""Memory in an SQLite file: one thread writes, one thread reads, and deleted rows are overwritten.

The file is private to its owner and belongs to this engine alone: a database of another program is refused.
Many processes may open it. Without a path, the memory is in this process and ends with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ...errors import InputError, NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from ...files import FILE_MODE
from ...own_files import MEMORY_APPLICATION
from ...process import Gate, Owner, pause_before_fork, paused
from ...stores.sqlite.changes import SCRUB_PAUSE, SCRUB_SECONDS, SCRUB_WAIT_MS
from ...stores.sqlite.connection import (
    MEMORY,
    Connection,
    check_sqlite_version,
    connect,
    create_file,
    patience,
    with_lock,
)
from ...stores.sqlite.faults import FilesReplaced, translated
from ...stores.sqlite.wal import settle_log
from .database import SCHEMA_VERSION, Operation, schema_steps, statements

VERSION = SCHEMA_VERSION

_log = logging.getLogger(__name__)

_SQL = statements("sqlite", "")

T = TypeVar("T")


class SqliteDatabase:
    """The tables of the engine in one file, or in memory."""

    def __init__(self, path: str | None) -> None:
        check_sqlite_version()
        self._path = path or MEMORY
        self.files = (Path(path).absolute(),) if path else ()
        self._closed = False
        self._running, self._is_open = Gate(), True
        self._reopening, self._letting_go = threading.Lock(), threading.Lock()
        with translated(self._path):
            self._writer = _prepared(path) if path else _in_memory()
            self._reader = _reader_for(self._writer, path) if path else self._writer
        self._owner = Owner(self, f"the memory {self._path}")
        pause_before_fork(self)
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="turnstate-memory-writer")
        self._reading = ThreadPoolExecutor(1, "turnstate-memory-reader") if path else self._writing

    async def rows(self, name: str, /, **given: Any) -> list[tuple[Any, ...]]:
        """Run one read-only statement."""

        def read() -> list[tuple[Any, ...]]:
            return self._reader.snapshot(lambda db: list(db.execute(_SQL[name], _plain(given))))

        return await self._run(self._reading, read)

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation in one transaction, which never waits for a writer."""

        def read() -> T:
            return self._reader.snapshot(lambda db: _driven(operation(), db))

        return await self._run(self._reading, read)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in one transaction, which is durable when this returns."""
        return await self._run(self._writing, lambda: self._write(operation))

    async def scrub(self) -> bool:
        """Empty the WAL: deleted rows are overwritten in their pages, which then replace those of the file.

        Return False, with a warning, if other processes kept the file busy throughout.
        """
        if not self.files or await self._run(self._writing, self._scrub):
            return True
        _log.warning(
            "rows were deleted, but their bytes may be left in %s and its WAL, which other processes were "
            "using for %g s; scrub the memory, or forget again, when they have finished",
            self._path, SCRUB_SECONDS,
        )  # fmt: skip
        return False

    async def close(self) -> None:
        """Close the file; a child that inherited it does nothing."""
        if self._closed or self._owner.is_elsewhere:
            return
        self._closed = True

        def close() -> None:
            for pool in {self._reading, self._writing}:
                pool.shutdown(wait=True)
            self._reader.close(True)
            self._writer.close(True)  # the last one, since it can copy the WAL into the file

        await asyncio.to_thread(close)

    async def _run(self, pool: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        self._owner.check()
        if self._closed:
            raise StoreError(f"the memory {self._path} is closed; open it again")

        def run() -> T:
            with self._running:
                self._reopen()
                return job()

        def run_again_if_replaced() -> T:
            seen = self._writer
            with translated(self._path):
                try:
                    return run()
                except FilesReplaced as error:
                    if not self._has_let_go(seen, error):
                        raise
                return run()  # every operation may be repeated: deliveries have keys

        return await asyncio.get_running_loop().run_in_executor(pool, run_again_if_replaced)

    def pause(self, deadline: float) -> None:
        """Close the file for a fork once no statement is running; if one still is, leave it open."""
        if self._running.shut(deadline) and self.files and self._is_open and not self._closed:
            self._disconnect()

    def resume(self) -> None:
        """Let statements run again; the next one opens the file."""
        self._running.open()

    def _has_let_go(self, seen: Connection, error: FilesReplaced) -> bool:
        """Close files that another program replaced once no statement is running, unless that was done.

        Other memories of this process in the same file let go of it, too; see `SqliteStore`.
        """
        with self._letting_go:
            if self._writer is not seen:
                return True
            with paused():
                is_closed = not self._is_open
        if is_closed:
            _log.warning(
                "another program removed or replaced %s, which this process had open; "
                "the memory is opened again",
                error,
            )
        return is_closed

    def _disconnect(self) -> None:
        """Close the file and leave its WAL as it is."""
        self._is_open = False
        self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._reader.close(True)
        self._writer.close(True)

    def _reopen(self) -> None:
        with self._reopening:
            if self._is_open:
                return
            if _version(self._path) != VERSION:
                raise StoreUnavailable(f"the memory {self._path} was removed or replaced; open it again")
            self._writer = _settled(self._path)
            self._reader = _reader_for(self._writer, self._path)
            self._is_open = True

    def _write(self, operation: Callable[[], Operation[T]]) -> T:
        made: list[T] = []
        with_lock(self._writer, lambda: made.append(_driven(operation(), self._writer)))
        return made[0]

    def _scrub(self) -> bool:
        deadline = time.monotonic() + SCRUB_SECONDS
        self._writer.set_busy_timeout(SCRUB_WAIT_MS)
        try:
            while True:
                with suppress(apsw.BusyError), self._writer.writing():  # another process is writing
                    if self._writer.checkpoint("TRUNCATE"):
                        return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(SCRUB_PAUSE)
        finally:
            self._writer.set_busy_handler(patience(self._path))


def _driven(operation: Operation[T], connection: apsw.Connection) -> T:
    rows: list[Any] | None = None
    try:
        while True:
            name, given = operation.send(rows)
            if isinstance(given, list):
                connection.executemany(_SQL[name], given)
                rows = []
            else:
                rows = list(connection.execute(_SQL[name], _plain(given)))
    except StopIteration as end:
        result: T = end.value
        return result


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Encode lists as JSON, the form that the SQLite statements take."""
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in given.items()}


def _prepared(path: str) -> Connection:
    """Open the file for writing; create it and its tables if they are missing, or refuse it untouched."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InputError(f"the folder {str(folder)!r} of the memory does not exist; create it first")
    create_file(path, FILE_MODE)
    _version(path)
    db = _settled(path)
    try:
        with_lock(db, lambda: _create(db))
        db.check_files()  # in a new file, the first transaction has created those next to it
    except BaseException:  # a connection that nobody closes keeps its locks on the file
        db.close()
        raise
    return db


def _settled(path: str) -> Connection:
    """Open the file for writing; whatever failed before, the frames of its WAL are on the disk."""
    db = connect(path, write=True)
    try:
        settle_log(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _reader_for(writer: Connection, path: str) -> Connection:
    try:
        return connect(path, write=False)
    except BaseException:
        writer.close()
        raise


def _version(path: str) -> int:
    """Return the version of the schema, 0 in a new file; refuse files of others and of newer versions."""
    db = Connection(path, apsw.SQLITE_OPEN_READONLY)
    try:
        ((application, version, tables),) = db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
            "FROM pragma_application_id, pragma_user_version"
        )
    finally:
        db.close()
    if application != MEMORY_APPLICATION and (version or tables):
        raise StoreDamaged(f"{path} is a database of another program; give the memory a file of its own")
    if version > VERSION:
        raise NewerFormat(f"the memory {path} has schema {version}; update Turnstate to open it")
    return int(version)


def _create(db: Connection) -> None:
    """Create the tables, or bring those of an older version up to date."""
    version = int(db.pragma("user_version"))
    if version < VERSION:
        key = "INTEGER PRIMARY KEY AUTOINCREMENT"
        db.execute(schema_steps("", after=version, key=key, integer="INTEGER", blob="BLOB"))
        db.pragma("user_version", VERSION)
        db.pragma("application_id", MEMORY_APPLICATION)


def _in_memory() -> Connection:
    db = Connection(MEMORY, apsw.SQLITE_OPEN_READWRITE)
    _create(db)
    return db
