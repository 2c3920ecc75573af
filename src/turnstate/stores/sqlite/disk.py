"""What SQLite does not say about a disk: whether it has locks at all, and whether it is still there.

SQLite reports a missing lock service as a lock that another process holds, and a disk that is gone as a
damaged page. So a file without a name is written to the folder of the store and tried instead; the files of
the store are not opened, since closing one releases the locks of this process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile

from ...errors import StoreUnavailable

_GONE = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ENOENT}


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
