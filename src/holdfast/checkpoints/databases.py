"""SQLite databases in a work tree: which are stores of ours, which are another program's and in use.

A database in use is several files that only SQLite can copy or replace, so it is left alone. A store is
left alone in any case. Both are recognized by their first bytes, read through the same descriptor as the
rest of the file.

POSIX drops all locks of a process on a file when the process closes any descriptor of that file, the
locks of an SQLite connection in another thread included; another process could then remove the log
that this connection still writes to. So a descriptor of a database that this process has open elsewhere
is set aside and used again, and closed only after the others.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

from ..stores.sqlite.connection import APPLICATION

__all__ = [
    "HEAD",
    "IN_USE",
    "OURS",
    "SIDES",
    "Belongs",
    "InUse",
    "Kind",
    "Opened",
    "Unreadable",
    "check_main_file",
    "checked",
    "is_in_use",
    "kind_of",
    "main_file",
    "opened",
    "side_files",
]

Kind = Literal["file", "database", "store"]

HEAD = 4096
"""Bytes at the start of a file that say what it is."""

OURS = "it belongs to Holdfast, and no checkpoint holds or changes it"
IN_USE = "it belongs to an SQLite database in use; close what works with it to have it kept and restored"

SIDES = (b"-wal", b"-shm", b"-journal")
"""How the names of the files end that SQLite keeps beside a database."""

_DATABASE = b"SQLite format 3\0"
_APPLICATION = slice(68, 72)
_MEMORY = b'{"kind":"user","version":'  # the first line of a memory engine's file
_TORN, _LINES = b".torn", b".jsonl"
_SIDE_STARTS = (
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    (3_007_000).to_bytes(4, sys.byteorder),
)
_READING = os.O_RDONLY | os.O_NONBLOCK
_MOST_DESCRIPTORS = 1024  # looked at where the system does not list them

_lock = threading.Lock()
_open = set[int]()
_aside = dict[tuple[int, int], list[int]]()


class Unreadable(Exception):
    """A file cannot be kept as it is now."""


class Belongs(Unreadable):
    """A file is a store of ours, or stands beside one."""

    def __init__(self) -> None:
        super().__init__(OURS)


class InUse(Unreadable):
    """A file is a database that somebody works with, or stands beside one."""

    def __init__(self) -> None:
        super().__init__(IN_USE)


class Opened(NamedTuple):
    """A regular file that is open for reading, and its first bytes; read it by `pread`."""

    descriptor: int
    status: os.stat_result
    head: bytes


def kind_of(head: bytes, name: bytes = b"") -> Kind:
    """Tell what a file is from its first bytes; the name matters for what stands beside a database."""
    if head.startswith(_DATABASE):
        return "store" if head[_APPLICATION] == APPLICATION.to_bytes(4, "big") else "database"
    if head.startswith(_MEMORY):
        return "store"
    return "database" if name.endswith(SIDES) and head.startswith(_SIDE_STARTS) else "file"


def main_file(path: bytes) -> bytes | None:
    """Return the path of the file that this one would belong to, judged by its name."""
    for side in SIDES:
        if path.endswith(side):
            return path.removesuffix(side)
    return path.removesuffix(_TORN) + _LINES if path.endswith(_TORN) else None


def side_files(path: bytes) -> tuple[bytes, ...]:
    """Return the paths of the files that SQLite would keep beside a database."""
    return tuple(path + side for side in SIDES)


def is_in_use(path: bytes, *, folder: int | None = None) -> bool:
    """Tell whether files beside a database say that somebody works with it, or died doing so.

    An empty rollback journal is what some journal modes leave behind after each transaction.
    """
    for side in SIDES:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(path + side, dir_fd=folder, follow_symlinks=False)
            if status.st_size or side != SIDES[-1]:
                return True
    return False


@contextmanager
def checked(path: bytes, *, folder: int | None = None) -> Iterator[Opened]:
    """Open a regular file to read it, or raise `Belongs` or `InUse`; no link is followed."""
    check_main_file(path, folder=folder)
    with opened(path, folder=folder) as file:
        kind = kind_of(file.head, path)
        if kind == "store":
            raise Belongs
        if kind == "database" or not file.head:
            _check_use(file, path, folder)
            yield file
            _check_use(file, path, folder)
        else:
            yield file


@contextmanager
def opened(path: bytes, *, folder: int | None = None, follow: bool = False) -> Iterator[Opened]:
    """Open a regular file to read it; no lock of this process on a database is dropped by that."""
    descriptor = _take_back(path, folder, follow=follow)
    if descriptor is None:
        descriptor = os.open(path, _READING | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
        with _lock:
            _open.add(descriptor)
    head = b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("it is not a regular file any more")
        head = os.pread(descriptor, HEAD, 0)
        yield Opened(descriptor, status, head)
    finally:
        _release(descriptor, head)


def check_main_file(path: bytes, *, folder: int | None = None) -> None:
    """Raise if a file stands beside a store or a database; beside an empty one, if it is SQLite's."""
    main = main_file(path)
    if main is None:
        return
    try:
        with opened(main, folder=folder) as file:
            kind = kind_of(file.head) if file.head or path.endswith(_TORN) else "database"
    except (OSError, Unreadable):
        return
    if kind == "store":
        raise Belongs
    if kind == "database":
        raise InUse


def _check_use(file: Opened, path: bytes, folder: int | None) -> None:
    """Raise if a database is in use, or was written while it was read."""
    if is_in_use(path, folder=folder) or (file.head and (path.endswith(SIDES) or _is_held(file.status))):
        raise InUse
    now = os.fstat(file.descriptor)
    if (now.st_size, now.st_mtime_ns) != (file.status.st_size, file.status.st_mtime_ns):
        raise Unreadable("it was written while it was read; the next snapshot has it")


def _take_back(path: bytes, folder: int | None, *, follow: bool) -> int | None:
    """Return the descriptor of this file that was set aside earlier, if one was."""
    if not _aside:
        return None
    status = os.stat(path, dir_fd=folder, follow_symlinks=follow)
    with _lock:
        kept = _aside.get((status.st_dev, status.st_ino))
        return kept.pop() if kept else None


def _release(descriptor: int, head: bytes) -> None:
    if kind_of(head) != "file":
        status = os.fstat(descriptor)
        if _is_held(status):
            with _lock:
                _aside.setdefault((status.st_dev, status.st_ino), []).append(descriptor)
            return
    with _lock:
        _open.discard(descriptor)
        os.close(descriptor)


def _is_held(status: os.stat_result) -> bool:
    """Tell whether this process has a file open by a descriptor that is not from here."""
    try:
        numbers = {int(name) for name in os.listdir("/dev/fd")}
    except OSError:
        numbers = set(range(_MOST_DESCRIPTORS))
    for number in numbers - _open:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.fstat(number), status):
                return True
    return False
