"""Translation of SQLite errors to store errors, and what SQLite does not say about a disk.

SQLite reports a missing lock service as a lock that another process holds, and a disk that is gone as a
damaged page. So a file without a name is written to the folder of the store and tried instead; the files of
the store are not opened, since closing one releases the locks of this process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ...errors import InputError, StoreDamaged, StoreError, StoreUnavailable, TurnstateError


class FilesReplaced(apsw.Error):
    """Another program removed or replaced a file of a database while this process had it open."""


UNUSABLE = (UnicodeEncodeError, OverflowError)
"""Python errors for values that SQLite cannot store."""

FAULTS = (apsw.Error, UnicodeDecodeError, OSError, MemoryError, *UNUSABLE)
"""All errors that `fault` translates."""

UNREADABLE = (apsw.CorruptError, apsw.TooBigError, UnicodeDecodeError)
"""Errors that a damaged row causes when it is read: a broken tree, an absurd length, or invalid UTF-8.

I/O errors and a lack of memory are not included, since they may pass: an entry that was not read then is not
damaged. SQLite does not allocate what a damaged length asks for if the file is shorter.
"""


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_GONE = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ENOENT}

_MEANINGS: list[tuple[type[apsw.Error], type[StoreError], str]] = [
    (
        FilesReplaced,
        StoreUnavailable,
        "another program removed or replaced {error}, which this process had open; nothing was acknowledged",
    ),
    (
        apsw.NotADBError,
        StoreDamaged,
        "{path} is not a database, or its header is damaged; give another path, or restore a copy",
    ),
    (apsw.CorruptError, StoreDamaged, "{path} is damaged ({error}); run `turnstate verify` on it"),
    (
        apsw.SQLError,
        StoreDamaged,
        "{path} does not have the tables of Turnstate ({error}); run `turnstate verify` on it",
    ),
    (apsw.FullError, StoreUnavailable, "the disk of {path} is full; free some space and try again"),
    (
        apsw.ReadOnlyError,
        StoreUnavailable,
        "{path} cannot be written; check the permissions of file and folder",
    ),
    (
        apsw.CantOpenError,
        StoreUnavailable,
        "{path} cannot be opened; check that its folder exists and is writable",
    ),
    (
        apsw.PermissionsError,
        StoreUnavailable,
        "this user is not allowed to open {path}; check its permissions",
    ),
    (
        apsw.BusyError,
        StoreUnavailable,
        "{path} has been locked by another process for too long; try again",
    ),
    (
        apsw.LockedError,
        StoreUnavailable,
        "{path} has been locked by another process for too long; try again",
    ),
    (apsw.ProtocolError, StoreUnavailable, "{path} cannot be locked ({error}); try again"),
    (apsw.IOError, StoreUnavailable, "{path} cannot be read or written ({error}); nothing was acknowledged"),
]


def fault(error: Exception, path: str) -> TurnstateError:
    """Return the error that the user sees, with the SQLite error as its cause."""
    translation = _translation(error, path)
    translation.__cause__ = error
    return translation


def _translation(error: Exception, path: str) -> TurnstateError:
    if isinstance(error, UNUSABLE):
        return unusable(error)
    if isinstance(error, UnicodeDecodeError):
        return StoreDamaged(
            f"{path} is damaged: a text column is not valid UTF-8; run `turnstate verify` on it"
        )
    if isinstance(error, apsw.NoMemError | MemoryError):
        return StoreUnavailable(f"there is no memory left to read or write {path}; nothing was acknowledged")
    if isinstance(error, OSError) and error.errno == errno.ENOLCK:
        return no_locks(path, error)
    if isinstance(error, OSError):
        return StoreUnavailable(
            f"{path} cannot be read or written ({error.strerror}); nothing was acknowledged"
        )
    if isinstance(error, apsw.CantOpenError) and (why := _why_nothing_opens()):
        return StoreUnavailable(f"{path} cannot be opened: {why}; nothing was acknowledged")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError) and is_gone(path):
        return StoreUnavailable(
            f"the disk of {path} cannot be read; nothing was acknowledged, check that it is connected"
        )
    if isinstance(error, apsw.ProtocolError | apsw.BusyError):
        try:
            check_locks(path)
        except StoreUnavailable as without_locks:
            return without_locks
    for kind, meaning, text in _MEANINGS:
        if isinstance(error, kind):
            return meaning(text.format(path=path, error=error))
    return StoreError(f"{path}: {type(error).__name__}: {error}")


def _why_nothing_opens() -> str:
    """Return why this process cannot open any file, or an empty string; SQLite does not say."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return f"{error.strerror} (see `ulimit -n`)" if error.errno in _NO_DESCRIPTORS else ""
    return ""


def unusable(error: Exception) -> InputError:
    """Return the error for a value that cannot be stored."""
    return InputError(f"a lone surrogate or a number beyond 64 bits cannot be stored: {error}")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SQLite errors as store errors."""
    try:
        yield
    except FAULTS as error:
        raise fault(error, path) from error


def check_locks(path: str) -> None:
    """Raise `StoreUnavailable` if the file system of a store has no locks."""
    try:
        with tempfile.TemporaryFile(dir=_folder(path)) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise no_locks(path, error) from error


def no_locks(path: str, error: OSError) -> StoreUnavailable:
    """Return the error for a file system without locks."""
    return StoreUnavailable(
        f"{path} cannot be locked: its file system has no lock service ({error.strerror}), as NFS "
        "without lockd; start the service, or use a local disk"
    )


def is_gone(path: str) -> bool:
    """Return True if the disk of a store fails as a whole, so that nothing can be said about the file."""
    try:
        with tempfile.TemporaryFile(dir=_folder(path)) as probe:
            probe.write(b"\0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in _GONE
    return False


def _folder(path: str) -> str:
    return os.path.dirname(os.path.realpath(path)) or os.curdir
