"""Durable files and locks: after a power failure, a file is complete or does not exist.

Syncing a file makes its bytes durable, syncing its folder makes its name durable, and syncing the
parent folder makes the folder's name durable. All files and folders are private to their owner (modes 0600
and 0700). Where a symbolic link must not be followed, folders are opened by descriptor, one name at a time.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP}  # some network file systems; names are durable there
_LOCK_POLL = 0.01  # seconds between two attempts to take a lock
_held = set[int]()


class LockTimeout(Exception):
    """Another process held a lock for longer than the caller was willing to wait."""


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, making each durable before the next."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)
    sync_folder(path.parent)


@contextmanager
def open_folder(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a folder and yield its descriptor."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def enter(above: int, name: str, *, make: bool = False) -> int:
    """Open a folder inside an open one, creating it first if ``make``; refuse a symbolic link."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=above)
            sync_folder(above)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)


def sync_folder(folder: int | str | os.PathLike[str]) -> None:
    """Make the names in a folder durable, given its path or an open descriptor."""
    if not isinstance(folder, int):
        with open_folder(folder) as opened:
            return sync_folder(opened)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise
    return None


def write_new(name: str, data: bytes, *, folder: int) -> None:
    """Create a file in an open folder and make its bytes durable; the file must not exist yet."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE, dir_fd=folder)
    try:
        os.fchmod(file, FILE_MODE)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except BaseException:  # a signal, too: half a file must not stay
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(file)


def replace(path: Path, data: bytes, *, draft: str = "") -> None:
    """Write a file durably and atomically, replacing any existing one.

    ``draft`` is the name of the temporary file; by default, a new unique name.
    """
    with open_folder(path.parent) as folder:
        if draft:
            with suppress(FileNotFoundError):  # left by a process that died
                os.unlink(draft, dir_fd=folder)
        draft = draft or f"{path.name}.{secrets.token_hex(8)}.tmp"
        write_new(draft, data, folder=folder)
        try:
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:  # a signal, too: a draft must not stay
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        sync_folder(folder)


def make_private(path: Path) -> None:
    """Create an empty file unless it exists, and make it private to its owner, whoever wrote it before."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(file, FILE_MODE)
    finally:
        os.close(file)


def save_cache(path: Path, magic: bytes, payload: bytes) -> None:
    """Write a file that need not survive a power failure; its checksum shows if a write was torn."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        draft.write_bytes(magic + hashlib.sha256(payload).digest() + payload)
        os.replace(draft, path)
    except BaseException:  # a signal, too: a draft must not stay
        with suppress(OSError):
            draft.unlink()
        raise


def load_cache(path: Path, magic: bytes) -> memoryview | None:
    """Return the saved payload; None if the file is missing, torn, or of another kind or version."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    payload = memoryview(data)[len(magic) + hashlib.sha256().digest_size :]
    return payload if data.startswith(magic + hashlib.sha256(payload).digest()) else None


def lock(path: Path, *, seconds: float) -> int:
    """Wait for the lock at a path and return its descriptor for `unlock`.

    Raise `LockTimeout` if another process holds the lock for longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while (held := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise LockTimeout(f"{path} has been locked by another process for {seconds:g} s")
        time.sleep(_LOCK_POLL)
    return held


def try_lock(path: Path) -> int | None:
    """Create a lock file if it is missing and lock it; return its descriptor, or None if it is taken.

    The kernel releases the lock when its last holder closes the file or dies.
    """
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
    _held.add(held)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the file; a lock on a removed file excludes no one.
        if os.path.samestat(os.fstat(held), os.stat(path)):
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:  # a signal, too: the lock would keep others out
        unlock(held)
        raise
    unlock(held)
    return None


def unlock(held: int) -> None:
    """Release a lock; a forked child, which does not have it, does nothing."""
    if held in _held:
        _held.discard(held)
        os.close(held)


def _leave_to_parent() -> None:
    """Close the locks that a forked child inherited: they would stay locked for as long as it lives."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_leave_to_parent)
