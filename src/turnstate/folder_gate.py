"""The one way to open files in folders of the user: it never drops a lock of SQLite.

Closing *any* descriptor of a file drops all POSIX locks that this process has on it. SQLite protects a
database and its shared memory (``-shm``) with such locks; without them, other processes overwrite what this
one commits. A user's folder may contain a store, and a store may have any name there: a link, a second name,
a bind mount. So files are told apart by device and inode, never by path, name or content:

- A database that this process has open through Turnstate is not opened at all: `OpenHere` is raised.
- Any other file is opened. If it may be a database, by its size, and something else in this process has it
  open as well, such as the program that uses Turnstate, the descriptor is kept instead of closed, and used
  again the next time.

A file that becomes a database meanwhile, by a swap or by opening a store, is noticed when it is closed.
Everything in Turnstate that opens a file which it did not create itself goes through here; a test reads the
source for exceptions.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias, cast

from .descriptors import Inode, closing_lock, inode_of, inodes_elsewhere, ours
from .open_databases import close_unless_covered, covers

AnyPath: TypeAlias = str | bytes | os.PathLike[str]

READING = os.O_RDONLY | os.O_CLOEXEC

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_MODES = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}
_SECTOR = 512
"""Databases and their shared memory have a multiple of this size. Looking through all descriptors of a
process takes 100 µs, too long for each of the thousands of files of a checkpoint."""

_kept = dict[Inode, list[int]]()


class OpenHere(OSError):
    """A file is a database that this process has open, or belongs to one; an OSError like other refusals."""

    def __init__(self, path: AnyPath) -> None:
        reason = "it is a store that this process has open, or belongs to one"
        super().__init__(errno.EBUSY, reason, os.fsdecode(path))


def open_file(path: AnyPath, flags: int = READING, *, folder: int | None = None, mode: int = 0o600) -> int:
    """Return a descriptor of a file, to be closed with `close`; raise `OpenHere` or another OSError."""
    expected = None
    try:
        expected = os.stat(path, dir_fd=folder, follow_symlinks=not flags & os.O_NOFOLLOW)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    else:
        if covers(expected):
            raise OpenHere(path)
        if (kept := _take_kept(expected, flags)) is not None:
            return kept
    descriptor = os.open(path, flags, mode, dir_fd=folder)
    with closing_lock:
        ours.add(descriptor)
    found = os.fstat(descriptor)
    if (expected is None or not os.path.samestat(expected, found)) and covers(found):
        close(descriptor)  # it was swapped in between
        raise OpenHere(path)
    return descriptor


def close(descriptor: int) -> None:
    """Close a descriptor, or keep it while closing it could drop a lock."""
    with closing_lock:
        ours.add(descriptor)  # it may be of a new file, or of a folder
        _close(descriptor)
        if _kept:  # rarely: some may be closed by now
            again = [one for every in _kept.values() for one in every]
            _kept.clear()
            for one in again:
                _close(one)


def is_open_elsewhere(descriptor: int) -> bool:
    """Return True if something else in this process has the same file open."""
    with closing_lock:
        return inode_of(os.fstat(descriptor)) in inodes_elsewhere()


@contextmanager
def opened(path: AnyPath, flags: int = READING, *, folder: int | None = None) -> Iterator[int]:
    """Open a file and yield its descriptor."""
    descriptor = open_file(path, flags, folder=folder)
    try:
        yield descriptor
    finally:
        close(descriptor)


@contextmanager
def stream(path: AnyPath, flags: int = READING, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open a file and yield it as a buffered stream."""
    descriptor = open_file(path, flags, mode=mode)
    try:
        with open(descriptor, _MODES[flags & _ACCESS], closefd=False) as file:
            yield cast("BinaryIO", file)
    finally:
        close(descriptor)


def read_bytes(path: AnyPath) -> bytes:
    """Return the content of a file."""
    with stream(path) as file:
        return file.read()


def _take_kept(status: os.stat_result, flags: int) -> int | None:
    """Return a descriptor of this file that was kept earlier, at the start of the file, or None."""
    with closing_lock:
        kept = _kept.get(inode_of(status)) if not flags & _ACCESS else None
        if not kept:
            return None
        descriptor = kept.pop()
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def _close(descriptor: int) -> None:
    status = os.fstat(descriptor)
    may_have_locks = stat.S_ISREG(status.st_mode) and status.st_size % _SECTOR == 0
    is_elsewhere = may_have_locks and inode_of(status) in inodes_elsewhere()
    if is_elsewhere or not close_unless_covered(descriptor):
        _kept.setdefault(inode_of(status), []).append(descriptor)
