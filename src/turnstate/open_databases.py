"""Which database files this process has open through SQLite.

POSIX locks belong to a process: closing *any* descriptor of a file drops all locks that the process has on
it, and SQLite's locks on a database and its shared memory (``-shm``) are such locks. So whoever reads files
of the user asks `covers` first, and neither opens nor closes a file that it covers. Files are recognized by
device and inode, so links, second names and bind mounts make no difference.

Every connection to a file is registered with `hold` before it is opened, and released after it was closed.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["DatabaseHold", "covers", "hold"]

Inode = tuple[int, int]

SIDES = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite keeps next to a database."""

_lock = threading.Lock()
_held = dict[Inode, "DatabaseHold"]()


class DatabaseHold:
    """What this process holds of one database file; all connections of the process to the file share it."""

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self._paths = set[str]()
        self._inodes = {inode}
        self._connections = 0

    def note_files(self) -> None:
        """Look which files SQLite has created next to the database; call it after opening it.

        Those seen earlier stay covered: SQLite may have them open under another name, or under none.
        """
        with _lock:
            self._note_files()

    def _note_files(self) -> None:
        for path in self._paths:
            for side in SIDES:
                with suppress(OSError):
                    self._inodes.add(_inode(os.stat(path + side)))

    def release(self) -> None:
        """Note that a connection was closed."""
        with _lock:
            self._connections -= 1
            if not self._connections:
                del _held[self.inode]


def hold(path: str) -> DatabaseHold:
    """Register a connection to an existing file, before it is opened."""
    real = os.path.realpath(path)  # SQLite resolves links, too, before it names the files next to it
    inode = _inode(os.stat(real))
    with _lock:
        one = _held.setdefault(inode, DatabaseHold(inode))
        one._paths.add(real)
        one._connections += 1
        one._note_files()
        return one


def covers(status: os.stat_result) -> bool:
    """Return True if a file is a database that this process has open, or belongs to one."""
    inode = _inode(status)
    with _lock:
        if not any(inode in one._inodes for one in _held.values()):
            for one in _held.values():
                one._note_files()
        return any(inode in one._inodes for one in _held.values())


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino
