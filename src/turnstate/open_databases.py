"""What this process holds of the database files that it has open through SQLite.

POSIX locks belong to a process: closing *any* descriptor of a file drops all locks that the process has on
it, and SQLite's locks on a database and its shared memory (``-shm``) are such locks. A tool that reads all
files of a folder is enough. Another process then takes itself for the last user and removes the WAL, or
writes to it at the same time. Two things prevent that:

- `covers` tells whoever reads files of the user which ones to leave alone. Files are recognized by device
  and inode, so links, second names and bind mounts make no difference.
- What code that is not ours closes cannot be prevented. So everything that SQLite's locks protect is locked a
  second time, by locks that belong to a descriptor of ours (open file description locks, Linux) and are
  dropped only when that is closed, after SQLite has closed the file:

      database   SQLite's shared lock     read    while the file is open: no one switches it out of WAL mode
                 presence                 read    while the file is open; write: by the last one, to remove
                                                  the WAL. Whoever comes then waits before opening it.
                 writing                  write   during a transaction that writes: one writer at a time
                 checkpointing            write   while pages of the WAL are copied into the database
      -shm       SQLite's lock on it      read    while the file is open: no one empties it under us
                 SQLite's read marks      read    during a read, once this process is known to drop locks

  A write transaction needs nothing else: no one else can commit, so a checkpoint of another process copies no
  page that is newer than the transaction's snapshot, and no one can start the WAL over.

  A read relies on SQLite's own read mark until the first time that the process drops its locks. A POSIX lock
  of our own that no one else asks for, the *canary*, is then gone, too: the read is repeated, and all later
  ones take the read marks a second time. They are not taken from the start, since while they are, no
  connection can move a mark forward, and checkpoints make less progress.

Where there are no such locks (other systems, some network file systems), `covers` is the only protection.
Programs other than Turnstate respect the locks that SQLite asks for, but neither *writing* nor
*checkpointing*: they must not write to a file while a process drops its locks.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

from .descriptors import Inode, closing_lock, inode_of, inodes_elsewhere, ours
from .own_files import SIDES

Lock = tuple[int, int]  # the first byte and the number of bytes

PATIENCE = 30.0
"""Seconds to wait for another process before giving up."""

_SIDES = tuple(side.decode() for side in SIDES)
_WITH_WAL = {"-wal", "-shm"}

# SQLite locks the first 512 bytes of the page at 1 GiB, in which it stores nothing: one each for pending and
# reserved, and 510 for shared. The next bytes of that page are free.
_SQLITE: Final = 0x40000000
_SHARED: Final = (_SQLITE + 2, 510)
_PRESENCE: Final = (_SQLITE + 512, 1)
_WRITING: Final = (_SQLITE + 513, 1)
_CHECKPOINTING: Final = (_SQLITE + 514, 1)
_READ_MARKS: Final = (123, 5)  # in the shared memory
_IN_USE: Final = (128, 1)  # in the shared memory: its first user empties it, all others leave it as it is
_CANARIES: Final = (1 << 41, 1 << 40)  # one byte of these at random: no other process locks the same one

_EMPTY_SHARED_MEMORY = 3  # bytes, as SQLite leaves it
_MODES = slice(18, 20)  # the bytes of a database's header that say whether it uses a WAL
_MAGIC = b"SQLite format 3\0"
_WAL_MODE = b"\2\2"
_FLOCK = struct.Struct("hhqqi4x" if struct.calcsize("P") == 8 else "hhqqi")
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_TAKEN = (errno.EAGAIN, errno.EACCES)  # by the lock of someone else

_DROPPED = (
    "this process has opened and closed {path} or a file next to it, which releases SQLite's locks; they are "
    "held a second time, so nothing is lost. Find the code that reads all files of the folder, or keep the "
    "store elsewhere"
)

_log = logging.getLogger(__name__)
_held = dict[Inode, "DatabaseHold"]()


class DatabaseHold:
    """What this process holds of one database file; all connections of the process to the file share it."""

    def __init__(self, path: str, descriptor: int, *, is_writable: bool) -> None:
        self.path, self._descriptor, self._is_writable = path, descriptor, is_writable
        self.inode = inode_of(os.fstat(descriptor)) if descriptor >= 0 else (0, 0)
        self.is_guarded = False  # SQLite's locks are held a second time
        self.drops_locks = False
        self._inodes, self._files = {self.inode}, dict[str, Inode]()
        self._replaced, self._looked = "", 0.0
        self.noted = set[str]()  # the files next to it that `note_files` has found
        self._door = threading.RLock()  # one connection is opened or closed at a time
        self._connections, self._is_gone = 0, False
        self._is_idle = False  # the last connection was closed, but something else has the file open
        self._claims = dict[Lock, object]()
        self._shared_memory, self._canary, self._spare = -1, b"", list[int]()
        self._has_presence = False
        self._marks, self._readers = threading.Lock(), 0

    # Opening and closing

    def opened(self, path: str, *, guard: bool) -> bool:
        """Count a connection that is about to be opened; return False if the last one was just closed."""
        with self._door:
            if self._is_gone:
                return False
            if self._is_idle:
                self._renew(path)
            try:
                if guard and not self._has_presence and self._descriptor >= 0 and _SET is not None:
                    self._enter()
                if guard:
                    self.shield()
            except BaseException:
                if not self._connections and not self.forgotten():
                    self._is_idle = True
                raise
            self._connections += 1
            return True

    def close(self, close: Callable[[], None], keep_log: Callable[[], object]) -> None:
        """Close a connection by `close`; call `keep_log` first if it must leave the WAL as it is.

        The last connection of the last process copies the WAL into the database and removes it. It is the
        last one if it gets the lock for presence; others wait for that, so it does not matter if this process
        drops SQLite's locks meanwhile.
        """
        with self._door:
            is_last = self._connections == 1
            may_remove = is_last and self._leave()
            if self.replaced_file() or (is_last and self._has_presence and not may_remove):
                keep_log()
            try:
                close()
            except BaseException:
                if may_remove:
                    self._enter()
                    self.shield()
                raise
            self.release()

    def release(self) -> None:
        """Note that a connection was closed; closing our descriptors drops all locks, so they come last.

        They are kept, with what they lock, while something else in this process has the file open: its POSIX
        locks would be dropped, too.
        """
        with self._door, closing_lock:
            self._connections -= 1
            if not self._connections and not self.forgotten():
                self._stay()

    def forgotten(self) -> bool:
        """Close our descriptors unless something else in this process has the same files open."""
        with closing_lock:
            elsewhere = inodes_elsewhere() if self._descriptor >= 0 else set()
            if self._shared_memory >= 0 and inode_of(os.fstat(self._shared_memory)) not in elsewhere:
                self._shared_memory, self._canary = _closed(self._shared_memory), b""
                self.is_guarded = False
            if self._shared_memory >= 0 or self.inode in elsewhere:
                return False
            self._is_gone, self._is_idle = True, False
            _held.pop(self.inode, None)
            self.forget()
            return True

    def forget(self) -> None:
        """Close our descriptors; this releases what they lock."""
        for one in (self._shared_memory, self._descriptor, *self._spare):
            _closed(one)
        self._shared_memory, self._descriptor, self._spare = -1, -1, []
        self.is_guarded = self._has_presence = False

    def forget_if_idle(self) -> None:
        """Close our descriptors if they were kept, and nothing else has the files open any more."""
        if self._is_idle and self._door.acquire(blocking=False):  # else it is being opened or closed
            try:
                if self._is_idle:
                    self.forgotten()
            finally:
                self._door.release()

    def _stay(self) -> None:
        """Keep our descriptors without a connection, and lock again what `_leave` unlocked for the last one.

        Without the locks, whatever has the file open is as safe as it would be without us.
        """
        self._is_idle = True
        with suppress(OSError):
            if self._has_presence:
                _lock_bytes(self._descriptor, fcntl.F_RDLCK, _PRESENCE)
            if self._shared_memory >= 0:
                self.shield()

    def _renew(self, path: str) -> None:
        """Begin anew with the descriptors that were kept: SQLite or someone else may have removed files."""
        self._is_idle = False
        self.path, self._files, self._replaced, self.noted = path, {}, "", set()
        if self._shared_memory >= 0:
            memory = os.fstat(self._shared_memory)
            try:
                is_same = os.path.samestat(memory, os.stat(f"{path}-shm"))
            except FileNotFoundError:
                is_same = False
            if not is_same:
                self._spare.append(self._shared_memory)
                self._shared_memory, self._canary, self.is_guarded = -1, b"", False
        kept = (self._descriptor, self._shared_memory, *self._spare)
        self._inodes = {inode_of(os.fstat(one)) for one in kept if one >= 0}

    def _enter(self) -> None:
        """Take the lock for presence; without such locks, this process goes without a guard.

        If the file system has no lock service, SQLite would try for seconds to get its own locks.
        """
        try:
            _wait(lambda: _lock_bytes(self._descriptor, fcntl.F_RDLCK, _PRESENCE), self.path)
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno == errno.ENOLCK:
                raise
            _log.info("%s: locks cannot be held a second time: %s", self.path, error)
        else:
            self._has_presence = True

    def _leave(self) -> bool:
        """Try to be the only process, and let SQLite have the file to itself, which our locks prevent."""
        if not self._has_presence or not self._is_writable or self.replaced_file():
            return False
        try:
            if not _lock_bytes(self._descriptor, fcntl.F_WRLCK, _PRESENCE):
                return False
            _lock_bytes(self._descriptor, fcntl.F_UNLCK, _SHARED)
            if self._shared_memory >= 0:
                _lock_bytes(self._shared_memory, fcntl.F_UNLCK, _IN_USE)
        except OSError as error:
            _log.info("%s: the WAL is left as it is, since no locks can be had: %s", self.path, error)
            return False
        self.is_guarded = False
        return True

    def shield(self) -> None:
        """Take SQLite's locks a second time if the file is in WAL mode; if possible, before SQLite reads it.

        In the rollback mode of a new file, and to roll back what a killed process left, SQLite needs the
        file to itself.
        """
        with self._door:
            if not self.is_guarded and self._has_presence and self._is_in_wal_mode():
                self._shield()

    def _shield(self) -> None:
        _wait(lambda: _lock_bytes(self._descriptor, fcntl.F_RDLCK, _SHARED), self.path)
        if self._is_writable:
            if self._shared_memory < 0:
                self._shared_memory = self._opened_shared_memory()
            if self._shared_memory >= 0:
                _wait(self._join_shared_memory, self.path)
                self._set_canary()
        self.is_guarded = True

    def _is_in_wal_mode(self) -> bool:
        header = os.pread(self._descriptor, _MODES.stop, 0)
        if not header.startswith(_MAGIC):
            return False
        with suppress(OSError):
            if os.stat(f"{self.path}-journal").st_size:
                return False
        return header[_MODES] == _WAL_MODE

    def _opened_shared_memory(self) -> int:
        """Open the shared memory, or create it as SQLite does; return -1 if SQLite will fail to open it."""
        about = os.fstat(self._descriptor)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = about.st_mode & 0o777
        try:
            opened = os.open(f"{self.path}-shm", flags, mode)
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:  # SQLite may have one later
                raise
            return -1
        ours.add(opened)
        with suppress(OSError):  # it belongs to another user
            if not os.fstat(opened).st_size:
                os.fchmod(opened, mode)
                if os.geteuid() == 0:
                    os.fchown(opened, about.st_uid, about.st_gid)
        return opened

    def _join_shared_memory(self) -> bool:
        """Become a user of the shared memory; the first one empties it, since it may be from before a crash.

        SQLite does the same, but between its lock and ours another process could empty it under us. It is
        never emptied if a connection of this process may use it already, ours or another one, whose lock may
        have been dropped: what is mapped there would be gone. A process that creates a database uses it
        before it has these locks; it is writing then.
        """
        memory = self._shared_memory
        is_first = not self._connections and _lock_bytes(memory, fcntl.F_WRLCK, _IN_USE)
        if is_first and not _is_mapped(os.fstat(memory)):
            if not _lock_bytes(self._descriptor, fcntl.F_WRLCK, _WRITING):
                _lock_bytes(memory, fcntl.F_UNLCK, _IN_USE)
                return False
            os.ftruncate(memory, _EMPTY_SHARED_MEMORY)
            _lock_bytes(self._descriptor, fcntl.F_UNLCK, _WRITING)
        return _lock_bytes(memory, fcntl.F_RDLCK, _IN_USE)

    # Files

    def note_files(self) -> None:
        """Look which files SQLite has created next to the database; call it after opening it.

        Those seen earlier stay covered: SQLite may have them open under another name, or under none.
        """
        for side in _SIDES:
            with suppress(OSError):
                self._inodes.add(inode_of(os.stat(self.path + side)))
                self.noted.add(side)

    def replaced_file(self, *, within: float = 0.0) -> str:
        """Return the name of a file of the database that was removed or replaced, or an empty text.

        What SQLite writes then reaches no one else. Files are known from the first call, when a connection
        uses them. They are looked at again if that was not done within some seconds.
        """
        if self._replaced or (within and time.monotonic() - self._looked < within):
            return self._replaced
        self._looked = time.monotonic()
        for name in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
            try:
                now: Inode | None = inode_of(os.stat(name))
            except FileNotFoundError:
                now = None
            except OSError:  # nothing is known: the disk is away, or the folder cannot be entered
                continue
            if self._files.get(name, now) != now:
                self._replaced = name
            elif now is not None:
                self._files[name] = now
        return self._replaced

    # Writing and checkpointing

    def try_to_write(self, claimant: object) -> bool:
        """Claim the right to write for a connection, unless another connection or process has it."""
        return self._claimed(_WRITING, claimant)

    def end_write(self, claimant: object) -> None:
        """Release the right to write."""
        self._unclaim(_WRITING, claimant)

    @contextmanager
    def checkpointing(self) -> Iterator[bool]:
        """Yield True if this process may copy the WAL now; two at once could leave an older page behind."""
        claimant = object()
        try:
            yield self._claimed(_CHECKPOINTING, claimant)
        finally:
            self._unclaim(_CHECKPOINTING, claimant)

    def _claimed(self, lock: Lock, claimant: object) -> bool:
        # A signal may interrupt this anywhere. The claim is one step, so that whoever closes the connection
        # afterwards knows whether to unlock.
        if self._claims.setdefault(lock, claimant) is not claimant:
            return False
        try:
            if not self._has_presence or _lock_bytes(self._descriptor, fcntl.F_WRLCK, lock):
                return True
        except OSError:
            del self._claims[lock]
            raise
        del self._claims[lock]
        return False

    def _unclaim(self, lock: Lock, claimant: object) -> None:
        if self._claims.get(lock) is claimant:
            try:
                if self._has_presence:
                    _lock_bytes(self._descriptor, fcntl.F_UNLCK, lock)
            finally:
                del self._claims[lock]

    # Reading

    def has_kept_locks(self) -> bool:
        """Return True if this process has not dropped its locks on the shared memory."""
        if not self._canary or fcntl.fcntl(self._shared_memory, _GET, self._canary)[:2] != _FREE:  # type: ignore[arg-type]
            return True
        if not self.drops_locks:
            self.drops_locks = True
            _log.warning("%s", _DROPPED.format(path=self.path))
        return False

    @contextmanager
    def read_marks(self) -> Iterator[None]:
        """Hold SQLite's read marks a second time."""
        with self._marks:
            if not self._readers and self._shared_memory >= 0:
                _wait(lambda: _lock_bytes(self._shared_memory, fcntl.F_RDLCK, _READ_MARKS), self.path)
            self._readers += 1
        try:
            yield
        finally:
            with self._marks:
                self._readers -= 1
                if not self._readers and self._shared_memory >= 0:
                    _lock_bytes(self._shared_memory, fcntl.F_UNLCK, _READ_MARKS)

    def _set_canary(self) -> None:
        first, size = _CANARIES
        byte = first + random.randrange(size)  # noqa: S311
        self._canary = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(self._shared_memory, fcntl.F_SETLK, self._canary)


def hold(path: str, *, guard: bool = True) -> DatabaseHold:
    """Register a connection to an existing file before it is opened, and guard it if it is a file of ours.

    Raise `TimeoutError` if another process keeps the file to itself.
    """
    real = os.path.realpath(path)  # SQLite resolves links, too, before it names the files next to it
    while True:
        one = _found(real)
        if one.opened(real, guard=guard):
            one.note_files()
            return one


def no_hold() -> DatabaseHold:
    """Return the hold of a database in memory: nothing to register, and no one to share it with."""
    one = DatabaseHold("", -1, is_writable=True)
    one.opened("", guard=False)
    return one


def covers(status: os.stat_result) -> bool:
    """Return True if a file is a database that this process has open, or belongs to one."""
    with closing_lock:
        return _covers(inode_of(status))


def dropped_locks(path: str) -> str:
    """Return a notice if this process has dropped its locks on a file that it has open, or an empty text."""
    try:
        with closing_lock:
            one = _held.get(inode_of(os.stat(path)))
            is_told = one is not None and (one.drops_locks or not one.has_kept_locks())
    except OSError:  # the next read or write reports it
        return ""
    return _DROPPED.format(path=path) if is_told else ""


def close_unless_covered(descriptor: int) -> bool:
    """Close a descriptor and return True; return False if closing it would drop locks of SQLite.

    No connection can be registered between the check and the close.
    """
    with closing_lock:
        if _covers(inode_of(os.fstat(descriptor))):
            return False
        ours.discard(descriptor)
        os.close(descriptor)
        return True


def _covers(inode: Inode) -> bool:
    _forget_idle()
    if not any(inode in one._inodes for one in _held.values()):
        for one in _held.values():
            if not one.noted >= _WITH_WAL:  # SQLite opens them late, and then keeps them open
                one.note_files()
    return any(inode in one._inodes for one in _held.values())


def _forget_idle() -> None:
    for one in [*_held.values()]:
        one.forget_if_idle()


def _found(path: str) -> DatabaseHold:
    with closing_lock:
        _forget_idle()
        one = _held.get(inode_of(os.stat(path)))
        if one is None:
            descriptor, is_writable = _opened(path)
            ours.add(descriptor)
            one = DatabaseHold(path, descriptor, is_writable=is_writable)
            if (known := _held.setdefault(one.inode, one)) is not one:  # the file was replaced meanwhile
                known._spare.append(descriptor)  # closing it would drop locks
            one = known
        return one


def _opened(path: str) -> tuple[int, bool]:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        ours.discard(descriptor)
        os.close(descriptor)
    return -1


def _is_mapped(status: os.stat_result) -> bool:
    """Return True if this process has a shared memory mapped, as SQLite does; False if the system is silent.

    The device is not compared: file systems of several disks have another one there.
    """
    if status.st_size <= _EMPTY_SHARED_MEMORY:  # looking takes half a millisecond, as long as opening a store
        return False
    try:
        with open("/proc/self/maps", "rb") as maps:
            lines = [line.split(maxsplit=5) for line in maps if b"-shm" in line]
    except OSError:
        return False
    return any(int(line[4]) == status.st_ino for line in lines)


def _lock_bytes(descriptor: int, kind: int, lock: Lock) -> bool:
    """Set or release a lock of a descriptor; return False if another one is in the way."""
    try:
        fcntl.fcntl(descriptor, _SET, _flock(kind, lock))  # type: ignore[arg-type]
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


@cache
def _flock(kind: int, lock: Lock) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, *lock, 0)


_FREE = _flock(fcntl.F_UNLCK, (0, 0))[:2]


def _wait(is_done: Callable[[], bool], path: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has been locked by another process for {PATIENCE:g} s")
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311


def _forget_in_child() -> None:
    """Close the descriptors that a forked process has inherited.

    A lock of a descriptor lasts until its last copy is closed: a child would keep the locks of a parent that
    was killed. The child has no locks of its own on these files yet.
    """
    for one in _held.values():
        one.forget()
        one._is_gone = True
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
