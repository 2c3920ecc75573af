"""Connections: opening a file, its pragmas, and the migration of its schema.

Many processes may open a new file or an old schema at the same time: the one that gets the lock migrates, and
the others find it done. A migration is one transaction, so a process that is killed during it leaves the
schema unchanged. The file is checked before anything is written: a file of another program, or of a newer
version, is not touched.
"""

from __future__ import annotations

import errno
import os
import random
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, TypeVar

import apsw

from ... import folder_gate
from ...errors import NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from ...files import FILE_MODE
from ...open_databases import PATIENCE, hold, no_hold
from ...own_files import APPLICATION
from ...process import keep_forever
from .faults import FilesReplaced, check_locks, no_locks
from .queries import MIGRATIONS
from .rows import add_functions
from .wal import has_log, lost_commits, note_lost_commits, read_log, report_lost_commits

T = TypeVar("T")

LEAST_SQLITE = (3, 51, 3)
"""Older versions can damage a database in WAL mode if two connections write at the wrong moment."""

MEMORY = ":memory:"

LOCKED = 0.1
"""Seconds after which a lock that is not free may be one that the file system does not have.

Where `open_databases` takes locks of its own, it has asked for one before SQLite does; this is for others.
"""

MAX_NAMED = 3
"""Maximum number of foreign objects that an error names."""

_MADE = re.compile(r"\bCREATE (VIRTUAL )?(TABLE|INDEX) (\w+)")
_PARTS_OF_INDEX = ("data", "idx", "docsize", "config")

_OBJECTS = "SELECT type, name FROM sqlite_schema"
_Object = tuple[str, str]


WAL_PAGES = 1_000
"""Pages in the WAL after which it is checkpointed, the same number as SQLite's default."""


LOOK_AGAIN = 0.1
"""Seconds after which a commit or a read makes sure that no file of the database was replaced."""

_inherited = set[tuple[int, int]]()  # device and inode of files that were open when this process was forked


class Connection(apsw.Connection):
    """A connection that holds its file, as `open_databases` describes, until it is closed.

    Whoever writes calls `begin_write` before BEGIN and `end_write` after COMMIT, or uses `writing`; reads
    run in `snapshot`. A connection that is never closed keeps its hold. One that asks SQLite for no locks, by
    `uri` or `vfs`, is only registered.
    """

    def __init__(self, file: str, flags: int, vfs: str | None = None, *, uri: str | None = None) -> None:
        try:
            self.hold = no_hold() if file == MEMORY else hold(file, guard=not (uri or vfs))
        except TimeoutError as error:
            raise apsw.BusyError(f"BusyError: {error}") from error
        except OSError as error:
            if error.errno == errno.ENOLCK:
                raise no_locks(file, error) from error
            raise apsw.CantOpenError(f"CantOpenError: {error}") from error
        if file != MEMORY and self.hold.inode in _inherited:
            self.hold.release()
            raise StoreUnavailable(
                f"{file} was in use when this process was forked, so that SQLite would take no locks here; "
                "open it in a process that is started with spawn, or fork before the file is used"
            )
        self._wait: Callable[[int], bool] = _never
        self._is_open, self._writes = True, 0
        self.pages = 0  # in the WAL, after the last commit
        try:
            super().__init__(uri or file, flags=flags | (apsw.SQLITE_OPEN_URI if uri else 0), vfs=vfs)
        except BaseException:  # a signal, too: without a connection, nothing would ever release the hold
            self.hold.release()
            raise
        self.set_wal_hook(_note_pages)  # instead of SQLite's, which checkpoints at once

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None:
        """Set what waits for a lock, ours included; None does not wait."""
        super().set_busy_handler(callable)
        self._wait = callable or _never

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Wait for a lock for this time."""
        self.set_busy_handler(patience(self.hold.path, milliseconds / 1000))

    def begin_write(self) -> None:
        """Wait for the right to write; call it before a transaction."""
        self._writes += 1
        if self._writes > 1:
            return
        calls = 0
        try:
            while not self.hold.try_to_write(self):
                if not self._wait(calls):
                    raise apsw.BusyError("BusyError: another process is writing")
                calls += 1
        except BaseException:  # a signal may arrive when the lock is taken already
            self._writes = 0
            self.hold.end_write(self)
            raise

    def end_write(self) -> None:
        """Let others write; roll back first what is left of a transaction, or close if that fails.

        A rollback of SQLite removes pages from the index that all processes share: no one else may have
        written meanwhile.
        """
        if self._writes > 1:
            self._writes -= 1
            return
        self._writes = 0
        try:
            if self._is_open and self.in_transaction:
                self.execute("ROLLBACK")
        except apsw.Error:  # what is left of the transaction must not be continued by the next one
            self.close(True)
            raise
        finally:  # after the rollback, never before
            self.hold.end_write(self)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have the right to write."""
        self.begin_write()
        try:
            yield
        finally:
            self.end_write()

    def check_files(self, *, within: float = 0.0) -> None:
        """Raise `FilesReplaced` if what this connection writes reaches no one else."""
        if name := self.hold.replaced_file(within=within):
            raise FilesReplaced(name)

    def checkpoint(self, mode: str = "PASSIVE") -> bool:
        """Copy the WAL into the file unless another process does; return True if nothing was in the way."""
        self.check_files()
        with self.hold.checkpointing() as is_allowed:
            if not is_allowed:
                return False
            # Also if a reader is in the way: the next commit counts the pages again, and tries again.
            self.pages = 0
            ((busy, _, _),) = self.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            return not busy

    def snapshot(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job in one snapshot; repeat it if this process dropped its locks meanwhile."""
        held = self.hold
        if held.is_guarded:
            self.check_files(within=LOOK_AGAIN)
        while not held.drops_locks and held.has_kept_locks():
            try:
                result = self.read_once(job)
            except Exception:  # without its locks, a read may meet pages that another process is changing
                if held.has_kept_locks():
                    raise
            else:
                if held.has_kept_locks():
                    return result
        with held.read_marks():
            return self.read_once(job)

    def read_once(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job in one snapshot, which is wrong if this process drops its locks meanwhile."""
        self.execute("BEGIN")
        try:
            return job(self)
        finally:  # a commit may fail in a damaged file, though nothing was written
            if self.in_transaction:
                self.execute("ROLLBACK")

    def close(self, force: bool = False) -> None:
        """Close the connection; the last one of the last process removes the WAL."""
        if not self._is_open:
            return
        keep = partial(self.config, apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self.hold.close(partial(super().close, force), keep)
        self._is_open = False
        self.hold.end_write(self)


def _note_inherited() -> None:
    """Leave connections that could not be closed before a fork untouched in the child; see `process`."""
    for db in apsw.connections():
        if isinstance(db, Connection):
            keep_forever(db)
            _inherited.add(db.hold.inode)


os.register_at_fork(after_in_child=_note_inherited)


def _note_pages(db: Any, _name: str, pages: int) -> int:
    db.pages = pages
    return apsw.SQLITE_OK


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
    db = Connection(path, flags, vfs, uri=uri)
    try:
        _configure(db)
        db.set_busy_handler(patience(path))
        if write:
            _prepare_writer(db)
        db.hold.note_files()  # after the pragmas, which may create the files next to it
        if write:
            db.check_files()
    except BaseException:  # a signal, too: a connection that nobody has would keep its hold for ever
        db.close()
        raise
    return db


def migrate(path: str, mode: int = FILE_MODE) -> None:
    """Create the file and its schema, bring the schema up to date, or refuse the file untouched."""
    db = migrated(path, mode)
    try:
        report_lost_commits(db, path)
    finally:
        db.close()


def migrated(path: str, mode: int = FILE_MODE) -> Connection:
    """Do the same as `migrate`, and return a connection that can write.

    Call `report_lost_commits` before its first write, or before closing it if nothing is written.
    """
    create_file(path, mode)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return _migrated(path)
        except (apsw.BusyError, apsw.LockedError, apsw.SchemaChangeError):
            # The switch to WAL does not call the busy handler.
            if time.monotonic() > deadline:
                raise
            if time.monotonic() > deadline - PATIENCE + LOCKED:
                check_locks(path)
            # Random, so that processes that started together do not meet again at the next try.
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311


def create_file(path: str, mode: int) -> None:
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
            folder_gate.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
        os.chmod(path, mode)  # regardless of the umask


def _migrated(path: str) -> Connection:
    db = Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        _configure(db)
        if has_log(db.hold.path):  # the file may not be ours: closing must not checkpoint its WAL
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_handler(patience(path))
        is_current = db.hold.is_guarded and _is_current(db, path)
        if not is_current:
            with db.writing():  # a file that another process is creating is not read before
                db.hold.shield()
                is_current = _is_current(db, path)
                if not is_current:
                    _step_up(db, path)
                    db.hold.shield()
                    _is_current(db, path)
        if is_current:
            _prepare_writer(db)
            db.check_files()
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)  # now it is known to be ours
            return db
    except BaseException:  # a signal, too: a connection that nobody has would keep its hold for ever
        db.close()
        raise
    db.close()  # checkpoints the new schema from the WAL to the file
    return connect(path, write=True)


def _is_current(db: Connection, path: str) -> bool:
    """Return True if the schema is up to date; raise an error if it has foreign objects."""
    version, objects = db.snapshot(lambda db: _schema(db, path))
    if version < len(MIGRATIONS) or db.pragma("journal_mode") != "wal":
        return False
    _refuse_foreign(objects, path)
    return True


def _step_up(db: Connection, path: str) -> None:
    """Bring the schema up to date; count what a damaged WAL lost before that, and record it afterwards."""
    log = read_log(path)  # before anything is written, since that overwrites the frames in question
    lost = lost_commits(db, path, log)
    db.pragma("auto_vacuum", "INCREMENTAL")  # affects only a new file; allows it to give back free pages
    _prepare_writer(db)
    with_lock(db, lambda: _take_steps(db, path))
    if log and lost:
        note_lost_commits(db, log, lost)


def is_current(path: str) -> bool:
    """Return True if a file has the current schema, so that it can be read without being migrated."""
    if not os.path.exists(path):
        return False
    db = Connection(path, apsw.SQLITE_OPEN_READONLY)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _configure(db)
        db.set_busy_handler(patience(path))
        return _is_current(db, path)
    finally:
        db.close()


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


def with_lock(db: Connection, work: Callable[[], None]) -> None:
    """Run work in a transaction that holds the write lock from the start, and checkpoint a long WAL."""
    with db.writing():
        db.execute("BEGIN IMMEDIATE")
        try:
            work()
            db.execute("COMMIT")
            # After the commit: it may have gone to a file that was replaced in the meantime.
            db.check_files(within=LOOK_AGAIN)
        except BaseException:  # a signal, too: the lock would keep all other processes from writing
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    if db.pages >= WAL_PAGES:
        with suppress(apsw.Error):  # the next commit fails in the same way, and reports it
            db.checkpoint()


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
    db.pragma("synchronous", "FULL")  # the WAL is synced before COMMIT returns: acknowledged means durable
    db.pragma("secure_delete", "ON")  # deleted text is overwritten, which an erasure relies on
    db.pragma("cache_size", -16_000)  # in kilobytes: eight times the default


def patience(path: str, seconds: float = PATIENCE) -> Callable[[int], bool]:
    """Return a busy handler that waits in short random steps: a lock is held for a few milliseconds."""
    waiting_since, is_checked = 0.0, False

    def wait(calls: int) -> bool:
        nonlocal waiting_since, is_checked
        waited = time.monotonic() - waiting_since
        if calls == 0:
            waiting_since, is_checked = time.monotonic(), False
        elif waited > seconds:
            return False
        elif waited > LOCKED and not is_checked:
            is_checked = True
            check_locks(path)
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311
        return True

    return wait


def _never(_calls: int) -> bool:
    return False
