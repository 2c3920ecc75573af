"""The work tree as a restore walks on it: by descriptors, a name at a time, never over a link.

Whoever swaps a folder for a link while files are brought back gains nothing: the way down is opened
anew for each folder, and a link on it is an error. What stands at a path is told by its bytes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from .. import files
from .capture import read_regular
from .objects import BLOB, object_id, split
from .protected import (
    NOTHING,
    SIDES,
    Belongs,
    InUse,
    Opened,
    Owned,
    Unreadable,
    check_main_file,
    is_in_use,
    kind_of,
)
from .values import FileEntry

__all__ = ["PathState", "SafeTree", "Syncing"]

_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class PathState(NamedTuple):
    """What stands at a path."""

    kind: Literal["nothing", "file", "link", "folder", "own", "database", "other"]
    blob: str = ""

    def is_(self, entry: FileEntry | None) -> bool:
        """Tell whether it has the bytes of an entry."""
        return entry is not None and self == PathState("link" if entry.link else "file", entry.blob)


class SafeTree:
    """An open work tree; `opened` gives one."""

    def __init__(self, root: int, owned: Owned) -> None:
        self._root, self._owned = root, owned
        self._near: tuple[bytes, int] | None = None

    @classmethod
    @contextmanager
    def opened(cls, work_tree: Path, owned: Owned = NOTHING) -> Iterator[SafeTree]:
        """Open a work tree, in which some paths are ours."""
        ground = cls(os.open(work_tree, os.O_RDONLY | os.O_DIRECTORY), owned)
        try:
            yield ground
        finally:
            ground.leave()
            os.close(ground._root)

    def enter(self, folder: bytes) -> int:
        """Give a descriptor of a folder, good until the next one is entered."""
        if not folder:
            return self._root
        if self._near is None or self._near[0] != folder:
            self.leave()
            descriptor = os.dup(self._root)
            for name in folder.split(b"/"):
                above, descriptor = descriptor, -1
                try:
                    descriptor = os.open(name, _INTO, dir_fd=above)
                finally:
                    os.close(above)
            self._near = (folder, descriptor)
        return self._near[1]

    def leave(self) -> None:
        """Forget the folder that was entered last; it may be gone by now."""
        if self._near is not None:
            os.close(self._near[1])
            self._near = None

    def nearest(self, folder: bytes) -> bytes:
        """Give the deepest folder on a way that is there."""
        while folder:
            try:
                self.enter(folder)
            except OSError:
                folder = split(folder)[0]
            else:
                return folder
        return folder

    def standing(self, path: bytes, *, most: int) -> PathState:
        """Tell what stands at a path; a file larger than ``most`` is none of ours.

        A store of ours is "own", and so is a link to one and a place beside one, whether or not a file is
        there; the same goes for a "database" in use.
        """
        folder, name = split(path)
        try:
            inside = self.enter(folder)
            status = self._status(path, name, inside)
            if status is None:
                return PathState("nothing")
            if stat.S_ISLNK(status.st_mode):
                blob = object_id(BLOB, os.readlink(name, dir_fd=inside))
                return PathState("own") if _leads_to_store(name, inside) else PathState("link", blob)
            if stat.S_ISREG(status.st_mode):
                return PathState("file", object_id(BLOB, read_regular(name, most=most, folder=inside)[0]))
            return PathState("folder" if stat.S_ISDIR(status.st_mode) else "other")
        except (FileNotFoundError, NotADirectoryError):
            return PathState("nothing")
        except Belongs:
            return PathState("own")
        except InUse:
            return PathState("database")
        except (OSError, Unreadable):
            return PathState("other")

    def refusal(self, path: bytes) -> str:
        """Say why nothing may be put at a path, or removed there, because of what it belongs to."""
        folder, name = split(path)
        try:
            inside = self.enter(folder)
            status = self._status(path, name, inside)
            if status is not None and stat.S_ISREG(status.st_mode):
                with Opened(name, folder=inside) as file:
                    file.check()
        except (Belongs, InUse) as error:
            return str(error)
        except (OSError, Unreadable):
            pass
        return ""

    def is_in_use(self, path: bytes) -> bool:
        """Tell whether a database at a path would be one in use, by its name or the files beside it."""
        folder, name = split(path)
        try:
            return name.endswith(SIDES) or is_in_use(name, folder=self.enter(folder))
        except OSError:
            return False

    def _status(self, path: bytes, name: bytes, inside: int) -> os.stat_result | None:
        """Look at a name; raise `Belongs` or `InUse` if it is ours, or beside what must be left alone."""
        if self._owned.covers(path):
            raise Belongs
        check_main_file(name, folder=inside)
        try:
            status = os.stat(name, dir_fd=inside, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if self._owned.is_at(path, status.st_dev, status.st_ino):
            raise Belongs
        return status

    def set_mode(self, path: bytes, mode: int) -> int:
        """Set the permission bits of a file, not of what a link leads to; give the file, still open."""
        folder, name = split(path)
        descriptor = os.open(name, _FILE, dir_fd=self.enter(folder))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no file any more")
            os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def set_folder_mode(self, path: bytes, mode: int) -> None:
        """Set the permission bits of a folder."""
        os.fchmod(self.enter(path), mode)

    def make_folder(self, path: bytes) -> None:
        """Make a folder in one that is there, private until it gets its mode."""
        folder, name = split(path)
        inside = self.enter(folder)
        with suppress(FileExistsError):
            os.mkdir(name, files.FOLDER_MODE, dir_fd=inside)
        self.enter(path)


def _leads_to_store(name: bytes, folder: int) -> bool:
    """Tell whether a link leads to a store; without it the store would seem to be gone."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder).st_mode):
            return False
        with Opened(name, folder=folder, follow=True) as file:
            return kind_of(file.head) == "store"
    except (OSError, Unreadable):
        return False


# Many files on their way to the disk at once: it writes a crowd in hardly more time than a single one.


_TOGETHER = 8
_OPEN = 64  # descriptors; a process has at least some hundred


class Syncing:
    """Descriptors that wait for the disk."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync
        self._waiting = list[int]()
        self._pool = ThreadPoolExecutor(_TOGETHER)

    def add(self, descriptor: int) -> None:
        """Hand an open file over."""
        self._waiting.append(descriptor)
        if len(self._waiting) >= _OPEN:
            self._settle()

    def _settle(self) -> None:
        try:
            for _ in self._pool.map(self._sync, self._waiting):
                pass
        finally:
            self._close()

    def _close(self) -> None:
        while self._waiting:
            os.close(self._waiting.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._settle()
        finally:
            self._pool.shutdown()
            self._close()
