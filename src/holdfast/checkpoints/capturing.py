"""From a walk to a tree of git objects: files that changed are read, the others are remembered.

The tree of a snapshot has two lines: `files`, the work tree as git would hold it, and `modes`, what git
does not hold. Objects that the repository lacks go into a pack; without a pack only their names are
computed, which is enough to tell whether anything changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .modes import Modes, is_program, permissions
from .objects import BLOB, EXECUTABLE, FILE, FOLDER, LINK, TREE, Leaf, Pack, object_id, tree
from .remembering import Memory, Remembered, remembered
from .values import Entry, LeftOut, Limits, Listing
from .walking import Scan, Stamp

__all__ = ["FILES", "MODES", "Captured", "Unreadable", "capture", "read_regular"]

FILES, MODES = "files", "modes"

_CHUNK = 1 << 20
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class Unreadable(Exception):
    """A file cannot be kept as it is now."""


class Captured(NamedTuple):
    """A work tree as objects: the tree's name, what it holds, and what to remember of it."""

    tree: str
    files: dict[bytes, Remembered]
    folders: dict[bytes, int]
    frame: frozenset[str]
    left_out: tuple[LeftOut, ...]

    def memory(self, commit: str) -> Memory:
        """Give what to remember once these objects are kept under a commit."""
        return Memory(commit=commit, tree=self.tree, files=self.files, frame=self.frame)

    def listing(self) -> Listing:
        """Give what it holds."""
        return Listing({path: _entry(file) for path, file in self.files.items()}, self.folders)


class _Keeper:
    """Names objects, and puts those into the pack that are not kept yet."""

    def __init__(self, known: Callable[[str], bool], pack: Pack | None) -> None:
        self._known, self._pack = known, pack
        self.frame = set[str]()

    def keep(self, kind: str, data: bytes) -> str:
        id = object_id(kind, data)
        if self._pack is not None and not self._known(id):
            self._pack.add(kind, data, id)
        return id

    def keep_frame(self, kind: str, data: bytes) -> str:
        """Keep something that is not a file of the user's."""
        id = self.keep(kind, data)
        self.frame.add(id)
        return id


def capture(
    work_tree: Path,
    scan: Scan,
    memory: Memory,
    *,
    known: Callable[[str], bool],
    pack: Pack | None,
    limits: Limits,
) -> Captured:
    """Read what changed since it was remembered, and make the tree of a snapshot."""
    keeper, left_out = _Keeper(known, pack), list(scan.left_out)
    files = dict(_files(os.fsencode(work_tree), scan, memory, keeper, limits, left_out))
    folders = {path: permissions(mode) for path, (mode, _) in scan.folders.items() if path}
    root = _root(files, folders, keeper)
    left_out.sort(key=lambda one: one.path)
    return Captured(root, files, folders, frozenset(keeper.frame), tuple(left_out))


def _files(
    work_tree: bytes, scan: Scan, memory: Memory, keeper: _Keeper, limits: Limits, left_out: list[LeftOut]
) -> Iterator[tuple[bytes, Remembered]]:
    for _, stamps in scan.folders.values():
        for path, stamp in stamps.items():
            if (found := memory.found(path, stamp)) is not None:
                yield path, found
                continue
            try:
                blob = keeper.keep(BLOB, _content(os.path.join(work_tree, path), stamp, limits))
            except FileNotFoundError:
                continue
            except OSError as error:
                left_out.append(LeftOut(path, f"it cannot be read: {error.strerror}"))
            except Unreadable as error:
                left_out.append(LeftOut(path, str(error)))
            else:
                yield path, remembered(stamp, blob, begun=scan.begun)


def _content(path: bytes, expected: Stamp, limits: Limits) -> bytes:
    if stat.S_ISLNK(expected.mode):
        return os.readlink(path)
    data, status = read_regular(path, most=limits.file_bytes)
    if (status.st_dev, status.st_ino) != (expected.device, expected.inode):
        raise Unreadable("it was replaced while it was looked at; the next snapshot has it")
    return data


def read_regular(path: bytes, *, most: int, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Read a regular file of at most so many bytes, never over a link at the end of its path."""
    descriptor = os.open(path, _READING, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("it is no regular file any more")
        data = os.read(descriptor, status.st_size + 1)
        if len(data) != status.st_size:  # it grows or shrinks meanwhile
            while len(data) <= most and (more := os.read(descriptor, _CHUNK)):
                data += more
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise Unreadable(f"it grew beyond {most:,} bytes while it was read")
    return data, status


def _entry(file: Remembered) -> Entry:
    return (
        Entry(True, 0, file.blob) if _is_link(file) else Entry(False, permissions(file.stamp.mode), file.blob)
    )


def _root(files: dict[bytes, Remembered], folders: dict[bytes, int], keeper: _Keeper) -> str:
    modes = {path: permissions(file.stamp.mode) for path, file in files.items() if not _is_link(file)}
    filled = {path.rpartition(b"/")[0] for paths in (files, folders) for path in paths}
    written = Modes.of(modes, folders, empty=folders.keys() - filled).encoded()
    lines = [
        Leaf(FILES.encode(), FOLDER, _files_tree(files, folders, keeper)),
        Leaf(MODES.encode(), FILE, keeper.keep_frame(BLOB, written)),
    ]
    return keeper.keep_frame(TREE, tree(lines))


def _files_tree(files: dict[bytes, Remembered], folders: dict[bytes, int], keeper: _Keeper) -> str:
    """Make the trees of all folders, the deepest first; git has none for a folder that holds nothing."""
    leaves: dict[bytes, list[Leaf]] = {b"": [], **{folder: [] for folder in folders}}
    for path, file in files.items():
        folder, _, name = path.rpartition(b"/")
        leaves[folder].append(Leaf(name, _git_mode(file.stamp.mode), file.blob))
    for path in reversed(folders):
        if leaves[path]:
            folder, _, name = path.rpartition(b"/")
            leaves[folder].append(Leaf(name, FOLDER, keeper.keep_frame(TREE, tree(leaves[path]))))
    return keeper.keep_frame(TREE, tree(leaves[b""]))


def _is_link(file: Remembered) -> bool:
    return stat.S_ISLNK(file.stamp.mode)


@cache
def _git_mode(mode: int) -> bytes:
    return LINK if stat.S_ISLNK(mode) else EXECUTABLE if is_program(mode) else FILE
