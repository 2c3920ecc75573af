"""Files that are still there after a power cut: what is written is on the disk before it has a name.

A file's bytes are forced to the disk by syncing the file, its name by syncing the folder it stands
in, and that folder's name by syncing the folder above. Everything here is private to its owner.
Folders are entered by descriptor and one name at a time where a link must not be followed.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["FILE_MODE", "FOLDER_MODE", "enter", "make_folder", "sync_folder", "write_new"]

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP}  # some network file systems; their names are durable


def make_folder(path: Path) -> None:
    """Make a folder and the parents it lacks, each on the disk before the next."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_folder(above)
    finally:
        os.close(above)


def enter(above: int, name: str, *, make: bool = False) -> int:
    """Open the folder of that name inside an open one, made first where asked for; a link is refused."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=above)
            sync_folder(above)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)


def sync_folder(folder: int) -> None:
    """Force the names in an open folder to the disk."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise


def write_new(name: str, data: bytes, *, folder: int) -> None:
    """Write a file that does not exist yet in an open folder, and force its bytes to the disk."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE, dir_fd=folder)
    try:
        os.fchmod(file, FILE_MODE)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(file)
