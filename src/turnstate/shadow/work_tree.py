"""Scans and changes the work tree through descriptors, one name at a time, never through a link.

A scan reads only folders. It lists a folder only if it is still the one that its parent listed, so swapping
a folder for a link achieves nothing. The `.git` of any repository is skipped, its other files are not. The
tree is listed level by level: git checks all names of a level together, and ignored folders are never
entered.

A restore works in a `SafeTree`, which opens the path to each folder from the top and refuses links in it.
The state of a path is decided by its bytes.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from msgspec import Struct

from .. import files, folder_gate
from ..errors import WorkTreeRefused
from ..own_files import SIDES, kind_of
from .contents import split
from .git import BLOB, object_id
from .ignore import RULES, Rules
from .protected import (
    NOTHING,
    InUse,
    Opened,
    Owned,
    OwnFile,
    UnreadableFile,
    check_main_file,
    is_in_use,
    is_shadow_repository,
    read_regular,
)
from .values import STAGED, FileEntry, LeftOut, SnapshotLimits

_REPOSITORY = b".git"
_SPECIAL = {
    stat.S_IFIFO: "it is a FIFO",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}
_ELSEWHERE = (
    "the ignore rules from before a restore still ignore it; it will be included once you change the rules"
)
_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = folder_gate.READING | os.O_NOFOLLOW | os.O_NONBLOCK
_THREADS = 8
_MAX_OPEN = 64  # descriptors; a process may have a few hundred at least


class FileStat(Struct, frozen=True, array_like=True, gc=False):
    """The stat of a file; while it is the same, the bytes are the same."""

    mode: int
    size: int
    modified: int
    changed: int
    inode: int
    device: int


class Scan(NamedTuple):
    """The work tree at one time: the mode and the files of each folder, parents before children."""

    begun: int  # nanoseconds by the system's clock
    folders: dict[bytes, tuple[int, dict[bytes, FileStat]]]
    left_out: list[LeftOut]
    own: set[bytes]  # paths that belong to Turnstate
    users_rules: Path  # the file with the user's ignore rules for all repositories

    @property
    def entries(self) -> int:
        """The number of files and folders."""
        return len(self.folders) + sum(len(files) for _, files in self.folders.values())


def file_stat(status: os.stat_result) -> FileStat:
    """Return the fields of a stat that show a change."""
    return FileStat(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_dev,
    )


def scan_work_tree(work_tree: Path, rules: Rules, *, limits: SnapshotLimits, owned: Owned) -> Scan:
    """Scan a work tree; skip what is ignored or belongs to Turnstate."""
    scan = Scan(time.time_ns(), {}, [], set(), rules.users)
    top = file_stat(os.stat(work_tree))
    level = {b"": top}
    while level:
        listed = dict(_listed(work_tree, level, rules, scan, owned))
        every = {path: found for names in listed.values() for path, found in names.items()}
        ignored = rules.ignored([*every], [path for path, found in every.items() if stat.S_ISDIR(found.mode)])
        below = dict[bytes, FileStat]()
        for folder, names in listed.items():
            wanted = {path: found for path, found in names.items() if path not in ignored}
            scan.folders[folder] = (level[folder].mode, _files(wanted, scan.left_out, limits))
            below |= {path: found for path, found in wanted.items() if stat.S_ISDIR(found.mode)}
        if scan.entries > limits.entries:
            raise WorkTreeRefused(
                f"{work_tree} holds more than {limits.entries:,} files and folders that are not ignored; "
                f"list what need not be kept in {work_tree / os.fsdecode(RULES)}, or raise the limit"
            )
        level = below
    scan.left_out.extend(LeftOut(path, _ELSEWHERE) for path in sorted(rules.elsewhere))
    if b"" not in scan.folders:
        raise WorkTreeRefused(f"{work_tree}: {scan.left_out[0].reason if scan.left_out else 'it is missing'}")
    return scan


def _listed(
    work_tree: Path, level: dict[bytes, FileStat], rules: Rules, scan: Scan, owned: Owned
) -> Iterator[tuple[bytes, dict[bytes, FileStat]]]:
    """Yield the folders of a level with everything in them that could be kept."""
    for folder, expected in level.items():
        try:
            names = _names(os.fsencode(work_tree), folder, expected)
        except FileNotFoundError:
            continue
        except OSError as error:
            scan.left_out.append(LeftOut(folder, f"it cannot be listed: {error.strerror}"))
            continue
        if is_shadow_repository(os.path.join(os.fsencode(work_tree), folder), names.keys()):
            scan.own.add(folder)
            continue
        if _has_unreadable_rules(names):
            scan.left_out.append(LeftOut(folder, f"what {RULES.decode()} in it ignores cannot be read"))
            continue
        if _REPOSITORY in names:
            rules.enter(folder)
        before = folder + b"/" if folder else b""
        paths = {
            before + name: found
            for name, found in names.items()
            if name != _REPOSITORY and not name.startswith(STAGED)
        }
        own = {path for path, found in paths.items() if owned.is_at(path, found.device, found.inode)}
        scan.own.update(own)
        yield folder, {path: found for path, found in paths.items() if path not in own}


def _names(work_tree: bytes, folder: bytes, expected: FileStat) -> dict[bytes, FileStat]:
    descriptor = os.open(os.path.join(work_tree, folder), _INTO)
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != (expected.device, expected.inode):
            raise FileNotFoundError  # another folder is there now; the next snapshot will have it
        names = dict[bytes, FileStat]()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    names[os.fsencode(entry.name)] = file_stat(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
        return names
    finally:
        os.close(descriptor)


def _has_unreadable_rules(names: dict[bytes, FileStat]) -> bool:
    """Return True if git would hang on the ignore rules of a folder."""
    return RULES in names and stat.S_IFMT(names[RULES].mode) in _SPECIAL


def _files(
    names: dict[bytes, FileStat], left_out: list[LeftOut], limits: SnapshotLimits
) -> dict[bytes, FileStat]:
    """Return the files and links that can be kept; add the others to ``left_out``."""
    files = dict[bytes, FileStat]()
    for path, found in names.items():
        kind = stat.S_IFMT(found.mode)
        if kind == stat.S_IFREG and found.size > limits.file_bytes:
            reason = f"it has {found.size:,} bytes; at most {limits.file_bytes:,} are kept"
            left_out.append(LeftOut(path, reason))
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            files[path] = found
        elif kind != stat.S_IFDIR:
            left_out.append(LeftOut(path, _SPECIAL.get(kind, "it is neither file, link nor folder")))
    return files


class PathState(NamedTuple):
    """What is at a path."""

    kind: Literal["nothing", "file", "link", "folder", "own", "database", "other"]
    blob: str = ""

    def matches(self, entry: FileEntry | None) -> bool:
        """Return True if the path has the bytes of an entry."""
        return entry is not None and self == PathState("link" if entry.link else "file", entry.blob)


class SafeTree:
    """An open work tree; create one with `opened`."""

    def __init__(self, root: int, owned: Owned) -> None:
        self._root, self._owned = root, owned
        self._near: tuple[bytes, int] | None = None

    @classmethod
    @contextmanager
    def opened(cls, work_tree: Path, owned: Owned = NOTHING) -> Iterator[SafeTree]:
        """Open a work tree in which the ``owned`` paths belong to Turnstate."""
        tree = cls(os.open(work_tree, os.O_RDONLY | os.O_DIRECTORY), owned)
        try:
            yield tree
        finally:
            tree.leave()
            os.close(tree._root)

    def enter(self, folder: bytes) -> int:
        """Return a descriptor of a folder, valid until the next call."""
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
        """Close the folder that was entered last."""
        if self._near is not None:
            os.close(self._near[1])
            self._near = None

    def nearest(self, folder: bytes) -> bytes:
        """Return the folder, or its deepest parent that exists."""
        while folder:
            try:
                self.enter(folder)
            except OSError:
                folder = split(folder)[0]
            else:
                return folder
        return folder

    def state_of(self, path: bytes, *, most: int) -> PathState:
        """Return what is at a path; a file larger than ``most`` bytes is "other".

        A store of ours is "own", and so are a link to one and the paths of its side files, whether or not
        they exist; a "database" in use covers its side files, too.
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
        except OwnFile:
            return PathState("own")
        except InUse:
            return PathState("database")
        except (OSError, UnreadableFile):
            return PathState("other")

    def refusal(self, path: bytes) -> str:
        """Return why a path must not be changed (a store or a database in use), or an empty string."""
        folder, name = split(path)
        try:
            inside = self.enter(folder)
            status = self._status(path, name, inside)
            if status is not None and stat.S_ISREG(status.st_mode):
                with Opened(name, folder=inside) as file:
                    file.check()
        except (OwnFile, InUse) as error:
            return str(error)
        except (OSError, UnreadableFile):
            pass
        return ""

    def is_in_use(self, path: bytes) -> bool:
        """Return True if a database at this path would be in use, by its name or the files beside it."""
        folder, name = split(path)
        try:
            return name.endswith(SIDES) or is_in_use(name, folder=self.enter(folder))
        except OSError:
            return False

    def _status(self, path: bytes, name: bytes, inside: int) -> os.stat_result | None:
        """Return the stat of a name, or None. Raise OwnFile or InUse if it must be left alone."""
        if self._owned.covers(path):
            raise OwnFile
        check_main_file(name, folder=inside)
        try:
            status = os.stat(name, dir_fd=inside, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if self._owned.is_at(path, status.st_dev, status.st_ino):
            raise OwnFile
        return status

    def set_mode(self, path: bytes, mode: int) -> int:
        """Set the permission bits of a file, never through a link; return the open descriptor."""
        folder, name = split(path)
        descriptor = folder_gate.open_file(name, _FILE, folder=self.enter(folder))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no longer a file")
            os.fchmod(descriptor, mode)
        except BaseException:  # a signal, too: the gate must close it
            folder_gate.close(descriptor)
            raise
        return descriptor

    def set_folder_mode(self, path: bytes, mode: int) -> None:
        """Set the permission bits of a folder."""
        os.fchmod(self.enter(path), mode)

    def make_folder(self, path: bytes) -> None:
        """Create a folder in an existing one; it is private until its mode is set."""
        folder, name = split(path)
        inside = self.enter(folder)
        with suppress(FileExistsError):
            os.mkdir(name, files.FOLDER_MODE, dir_fd=inside)
        self.enter(path)


def _leads_to_store(name: bytes, folder: int) -> bool:
    """Return True if a link leads to a store; without the link the store would seem to be missing."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder).st_mode):
            return False
        with Opened(name, folder=folder, follow=True) as file:
            return kind_of(file.head) == "store"
    except OwnFile:
        return True
    except (OSError, UnreadableFile):
        return False


class ParallelSync:
    """Syncs descriptors in parallel and closes them; a disk syncs many files in little more time than one."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync
        self._waiting = list[int]()
        self._pool = ThreadPoolExecutor(_THREADS)

    def add(self, descriptor: int) -> None:
        """Add an open descriptor; it is closed after the sync."""
        self._waiting.append(descriptor)
        if len(self._waiting) >= _MAX_OPEN:
            self._settle()

    def _settle(self) -> None:
        try:
            for _ in self._pool.map(self._sync, self._waiting):
                pass
        finally:
            self._close()

    def _close(self) -> None:
        while self._waiting:
            folder_gate.close(self._waiting.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._settle()
        finally:
            self._pool.shutdown()
            self._close()
