"""Connections: opening a file, its pragmas, and the migration of its schema.

Many processes may open a new file or an old schema at the same time: the one that gets the lock migrates, and
the others find it done. A migration is one transaction, so a process that is killed during it leaves the
schema unchanged. The file is checked before anything is written: a file of another program, or of a newer
version, is not touched.
"""

from __future__ import annotations

import os
import random
import re
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

import apsw

from ...errors import NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from ...files import FILE_MODE
from ...open_databases import hold
from ...own_files import APPLICATION, MEMORY_APPLICATION
from .queries import MIGRATIONS
from .rows import add_functions
from .wal import has_log, lost_commits, note_lost_commits, read_log, report_lost_commits

__all__ = [
    "APPLICATION",
    "LEAST_SQLITE",
    "MEMORY_APPLICATION",
    "PATIENCE",
    "Connection",
    "check_readable",
    "check_sqlite_version",
    "connect",
    "foreign_objects",
    "migrate",
    "migrated",
    "patience",
]

LEAST_SQLITE = (3, 51, 3)
"""Older versions can damage a database in WAL mode if two connections write at the wrong moment."""

PATIENCE = 30.0
"""Seconds to wait for another process before giving up."""

MAX_NAMED = 3
"""Maximum number of foreign objects that an error names."""

_MADE = re.compile(r"\bCREATE (VIRTUAL )?(TABLE|INDEX) (\w+)")
_PARTS_OF_INDEX = ("data", "idx", "docsize", "config")

_OBJECTS = "SELECT type, name FROM sqlite_schema"
_Object = tuple[str, str]


class Connection(apsw.Connection):
    """A connection to a file that is registered with `open_databases` until it is closed.

    `file` is the path of the file if `name` is a URI. A connection that is never closed stays registered.
    """

    def __init__(self, name: str, flags: int, vfs: str | None = None, *, file: str | None = None) -> None:
        try:
            self.hold = hold(file or name)
        except OSError as error:
            raise apsw.CantOpenError(f"CantOpenError: {error}") from error
        try:
            super().__init__(name, flags=flags, vfs=vfs)
        except BaseException:
            self.hold.release()
            raise
        self._is_held = True

    def close(self, force: bool = False) -> None:
        """Close the connection; its file stays registered if that fails."""
        super().close(force)
        if self._is_held:
            self._is_held = False
            self.hold.release()


def check_sqlite_version() -> None:
    """Raise `StoreError` if the linked SQLite version can damage databases."""
    linked = tuple(int(number) for number in apsw.sqlite_lib_version().split("."))
    if linked < LEAST_SQLITE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can damage databases in WAL mode; "
            f"install an apsw that brings {'.'.join(map(str, LEAST_SQLITE))} or newer"
        )


def connect(path: str, *, write: bool, uri: str | None = None, vfs: str | None = None) -> Connection:
    """Open a connection to a file that already has its schema; `uri` names the file with options."""
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    db = Connection(uri or path, flags | (apsw.SQLITE_OPEN_URI if uri else 0), vfs, file=path)
    try:
        _configure(db)
        db.set_busy_handler(patience())
        if write:
            _prepare_writer(db)
    except BaseException:
        db.close()
        raise
    db.hold.note_files()
    return db


def migrate(path: str, mode: int = FILE_MODE) -> None:
    """Create the file and its schema, bring the schema up to date, or refuse the file untouched."""
    db = migrated(path, mode)
    try:
        report_lost_commits(db, path)
    finally:
        db.close()


def migrated(path: str, mode: int = FILE_MODE) -> apsw.Connection:
    """Do the same as `migrate`, and return a connection that can write.

    Call `report_lost_commits` before its first write, or before closing it if nothing is written.
    """
    _create(path, mode)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return _migrated(path)
        except (apsw.BusyError, apsw.LockedError, apsw.SchemaChangeError):
            # The switch to WAL does not call the busy handler.
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311


def _create(path: str, mode: int) -> None:
    """Create an empty private file unless it exists; SQLite would let all users read it.

    SQLite copies its mode to the side files. The file is created without being opened, since closing a file
    releases all locks that this process has on it.
    """
    if os.path.exists(path):
        return
    path = os.path.realpath(path)  # a link may lead to a file that does not exist yet
    with suppress(OSError):  # another process created it, or SQLite will report why it cannot be opened
        try:
            os.mknod(path, stat.S_IFREG | mode)
        except PermissionError:  # some systems allow mknod only to root
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
        os.chmod(path, mode)  # regardless of the umask


def _migrated(path: str) -> apsw.Connection:
    db = Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        _configure(db)
        if has_log(path):  # the file may not be ours: closing must not checkpoint its WAL
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_handler(patience())
        version, objects = _schema(db, path)
        is_old = version < len(MIGRATIONS) or db.pragma("journal_mode") != "wal"
        if is_old:
            _step_up(db, path)
            _, objects = _schema(db, path)
        _refuse_foreign(objects, path)
        if not is_old:
            _prepare_writer(db)
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            return db
    except BaseException:
        db.close()
        raise
    db.close()  # checkpoints the new schema from the WAL to the file
    return connect(path, write=True)


def _step_up(db: apsw.Connection, path: str) -> None:
    """Bring the schema up to date; count what a damaged WAL lost before that, and record it afterwards."""
    log = read_log(path)
    lost = lost_commits(db, path, log)
    db.pragma("auto_vacuum", "INCREMENTAL")  # affects only a new file; allows it to give back free pages
    _prepare_writer(db)
    with_lock(db, lambda: _take_steps(db, path))
    if log and lost:
        note_lost_commits(db, log, lost)


def check_readable(db: apsw.Connection, path: str) -> None:
    """Raise an error if a read-only file would have to be migrated, or has foreign objects."""
    version, objects = _schema(db, path)
    if version < len(MIGRATIONS):
        raise StoreUnavailable(
            f"{path} has schema {version} and cannot be brought up to date, since it cannot be written; "
            "open it once with write access, or open a copy"
        )
    _refuse_foreign(objects, path)


def _configure(db: apsw.Connection) -> None:
    """Disable triggers and views, which only another program adds, and query plans that use bound values.

    With such plans, SQLite prepares a statement again whenever a different number is bound to its LIMIT,
    which takes longer than most queries.
    """
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    add_functions(db)


def _refuse_foreign(objects: Iterable[_Object], path: str) -> None:
    """Raise `StoreDamaged` if the schema has objects of another program."""
    if found := _foreign(objects):
        raise StoreDamaged(
            f"{path} has {', '.join(found[:MAX_NAMED])}, which Turnstate did not make and which could read "
            "or change what is written; find out who added it, then drop it, or run "
            "`turnstate verify --repair` for a copy without it"
        )


def foreign_objects(db: apsw.Connection) -> list[str]:
    """Return the triggers, views, tables and indexes that do not belong to our schema."""
    return _foreign((str(kind), str(name)) for kind, name in db.execute(_OBJECTS))


def _foreign(objects: Iterable[_Object]) -> list[str]:
    known = _own_objects(MIGRATIONS)
    return [
        f"the {kind} `{name}`"
        for kind, name in objects
        if (kind, name) not in known and not (kind in ("table", "index") and name.startswith("sqlite_"))
    ]


@cache
def _own_objects(steps: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Return kind and name of everything that migrations create, except SQLite's own objects."""
    made = {(kind.lower(), name) for step in steps for _, kind, name in _MADE.findall(step)}
    indexes = [name for step in steps for virtual, _, name in _MADE.findall(step) if virtual]
    return frozenset(made | {("table", f"{name}_{part}") for name in indexes for part in _PARTS_OF_INDEX})


def with_lock(db: apsw.Connection, work: Callable[[], None]) -> None:
    """Run work in a transaction that holds the write lock from the start."""
    db.execute("BEGIN IMMEDIATE")
    try:
        work()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _take_steps(db: apsw.Connection, path: str) -> None:
    steps = MIGRATIONS
    version, _ = _schema(db, path)
    for number in range(version, len(steps)):
        db.execute(steps[number])
        db.execute(f"PRAGMA user_version = {number + 1}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")


def _schema(db: apsw.Connection, path: str) -> tuple[int, list[_Object]]:
    """Return the schema's version and its objects; refuse a file of another program or of a newer version.

    Everything is read in one snapshot, since another process may be migrating.
    """
    begun = not db.in_transaction
    if begun:
        db.execute("BEGIN")
    try:
        application, version = db.pragma("application_id"), db.pragma("user_version")
        objects = [(str(kind), str(name)) for kind, name in db.execute(_OBJECTS)]
    finally:
        if begun and db.in_transaction:
            db.execute("ROLLBACK")
    if application != APPLICATION and (version or objects):
        raise StoreDamaged(f"{path} is a database of another program; give the path of another file")
    if application == APPLICATION and version < 1:
        raise StoreDamaged(f"{path} is damaged: its schema has the number {version}; restore a copy")
    if version > len(MIGRATIONS):
        raise NewerFormat(
            f"{path} has schema {version}, newer than {len(MIGRATIONS)}; update Turnstate to open it"
        )
    return int(version), objects


def _prepare_writer(db: apsw.Connection) -> None:
    if db.pragma("journal_mode", "wal") != "wal":
        raise StoreUnavailable(
            f"{db.filename} cannot be put into WAL mode; its file system must support shared memory"
        )
    db.pragma("synchronous", "FULL")
    db.pragma("secure_delete", "ON")
    db.pragma("cache_size", -16_000)


def patience() -> Callable[[int], bool]:
    """Return a busy handler that waits in short random steps: a lock is held for a few milliseconds."""
    waiting_since = 0.0

    def wait(calls: int) -> bool:
        nonlocal waiting_since
        if calls == 0:
            waiting_since = time.monotonic()
        elif time.monotonic() - waiting_since > PATIENCE:
            return False
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311
        return True

    return wait
