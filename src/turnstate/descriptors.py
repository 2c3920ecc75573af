"""The descriptors of this process: which files are open other than through ours.

Closing any descriptor of a file drops all POSIX locks that the process has on it, so whoever closes one that
may be of a database asks first. Modules that keep descriptors of such files list them in `ours`.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TypeAlias

from .process import hold_during_fork

Inode: TypeAlias = tuple[int, int]

_MAX_DESCRIPTORS = 1024  # checked if the system does not list them

closing_lock = threading.RLock()
"""Held while a descriptor is closed, or a file is found not to need one.

One lock for all modules, and one that a thread may take twice: a garbage collection anywhere may close a
forgotten file, and with two locks it could take them in the other order.
"""

hold_during_fork(closing_lock)  # a thread that a forked process does not have may be closing a file just then

ours = set[int]()
"""Descriptors that take no POSIX locks, as SQLite's do; take one out before closing it."""


def inode_of(status: os.stat_result) -> Inode:
    """Return device and inode, which tell files apart whatever their names are."""
    return status.st_dev, status.st_ino


def inodes_elsewhere() -> set[Inode]:
    """Return the files that are open in this process by descriptors that are not ours."""
    try:
        numbers = {int(number) for number in os.listdir("/dev/fd")}
    except OSError:
        numbers = set(range(_MAX_DESCRIPTORS))
    found = set[Inode]()
    for number in numbers - ours:
        with suppress(OSError):  # closed meanwhile
            found.add(inode_of(os.fstat(number)))
    return found
