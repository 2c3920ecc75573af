"""From a walk to a tree of git objects: files that changed are read, the others are remembered.

The tree of a snapshot has two lines: `files`, the work tree as git would hold it, and `modes`, what git
does not hold. A third, `left`, names the databases that were in use, if any: they were there, so that no
restore of this snapshot may remove them. Objects that the repository lacks go into a pack; without a pack
only their names are computed, which is enough to tell whether anything changed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .objects import (
    BLOB,
    EXECUTABLE,
    FILE,
    FOLDER,
    LINK,
    TREE,
    Leaf,
    Modes,
    Pack,
    is_program,
    object_id,
    permissions,
    tree,
)
from .protected import HEAD, Belongs, InUse, Opened, Unreadable, check_main_file, kind_of, main_file
from .scan import Scan, Stamp
from .values import FileEntry, LeftOut, Limits, Listing

__all__ = [
    "FILES",
    "LEFT",
    "MODES",
    "Captured",
    "Remembered",
    "StatCache",
    "capture",
    "is_settled",
    "read_regular",
    "remembered",
]

# What the last snapshot saw of each file, so that a file that did not change is not read again.


_MAGIC = b"turnstate stamps 2\n"  # files of version 1 may remember a store as a file to be kept
_TICK = 100_000_000  # nanoseconds; clocks of kernels tick every 1 to 10 ms
_LONG_TICK = 2_000_000_000  # file systems that keep whole seconds, or every second one


class Remembered(Struct, frozen=True, array_like=True, gc=False):
    """A file's status and the blob that it was read to; a database is kept only while it is not in use."""

    stamp: Stamp
    blob: str
    database: bool = False


class StatCache(Struct, frozen=True, kw_only=True):
    """The files of a commit, and the objects that frame them; all of them are in the repository."""

    commit: str = ""
    tree: str = ""
    files: dict[bytes, Remembered] = {}
    frame: frozenset[str] = frozenset()

    def found(self, path: bytes, now: Stamp) -> Remembered | None:
        """Give what is remembered of a file that has not changed since."""
        found = self.files.get(path)
        return found if found is not None and found.stamp == now else None

    def known(self) -> set[str]:
        """Name the objects that need not be written again."""
        return {*self.frame, *(file.blob for file in self.files.values())}

    def save(self, path: Path) -> None:
        """Write the memory down; it need not survive a power cut, only be told from a torn one."""
        payload = msgspec.msgpack.encode(self)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()

    @classmethod
    def load(cls, path: Path) -> StatCache:
        """Read what was written down, or remember nothing."""
        try:
            data = path.read_bytes()
        except OSError:
            return cls()
        start = len(_MAGIC) + 32
        payload = memoryview(data)[start:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != data[len(_MAGIC) : start]:
            return cls()
        try:
            return msgspec.msgpack.decode(payload, type=cls)
        except msgspec.DecodeError:
            return cls()


def remembered(stamp: Stamp, blob: str, *, begun: int, database: bool = False) -> Remembered:
    """Remember a file that was read in a walk; one that is not settled is never found unchanged."""
    return Remembered(stamp if is_settled(stamp, begun) else replace(stamp, changed=-1), blob, database)


def is_settled(stamp: Stamp, begun: int) -> bool:
    """Tell whether a later change of a file would show in its status; times of change cannot be set."""
    tick = _LONG_TICK if stamp.changed % 1_000_000_000 == 0 else _TICK
    return stamp.changed + tick < begun


FILES, MODES, LEFT = "files", "modes", "left"

_CHUNK = 1 << 20


class Captured(NamedTuple):
    """A work tree as objects: the tree's name, what it holds, and what to remember of it."""

    tree: str
    files: dict[bytes, Remembered]
    folders: dict[bytes, int]
    frame: frozenset[str]
    left_out: tuple[LeftOut, ...]
    own: frozenset[bytes]  # paths that belong to Turnstate
    stores: frozenset[bytes]  # files that do so by their content

    def memory(self, commit: str) -> StatCache:
        """Give what to remember once these objects are kept under a commit."""
        return StatCache(commit=commit, tree=self.tree, files=self.files, frame=self.frame)

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
    memory: StatCache,
    *,
    known: Callable[[str], bool],
    pack: Pack | None,
    limits: Limits,
) -> Captured:
    """Read what changed since it was remembered, and make the tree of a snapshot."""
    keeper, found = _Keeper(known, pack), _Found(list(scan.left_out), set(), [])
    files = dict(_files(os.fsencode(work_tree), scan, memory, keeper, limits, found))
    folders = {path: permissions(mode) for path, (mode, _) in scan.folders.items() if path}
    root = _root(files, folders, found.in_use, keeper)
    found.left_out.sort(key=lambda one: one.path)
    return Captured(
        tree=root,
        files=files,
        folders=folders,
        frame=frozenset(keeper.frame),
        left_out=tuple(found.left_out),
        own=frozenset(scan.own),
        stores=frozenset(found.stores),
    )


class _Found(NamedTuple):
    """What is not captured."""

    left_out: list[LeftOut]
    stores: set[bytes]
    in_use: list[bytes]


def _files(
    work_tree: bytes, scan: Scan, memory: StatCache, keeper: _Keeper, limits: Limits, found: _Found
) -> Iterator[tuple[bytes, Remembered]]:
    for _, stamps in scan.folders.values():
        for path, stamp in stamps.items():
            known = memory.found(path, stamp)
            if known is not None and not known.database and main_file(path) is None:
                yield path, known
                continue
            full = os.path.join(work_tree, path)
            try:
                kept = _unused(full, known) if known else _read(full, stamp, keeper, limits, scan.begun)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.left_out.append(LeftOut(path, f"it cannot be read: {error.strerror}"))
            except Belongs:
                found.stores.add(path)
            except InUse as error:
                found.in_use.append(path)
                found.left_out.append(LeftOut(path, str(error)))
            except Unreadable as error:
                found.left_out.append(LeftOut(path, str(error)))
            else:
                yield path, kept


def _unused(path: bytes, known: Remembered) -> Remembered:
    """Return what is remembered of a database, or raise `InUse`."""
    if not _is_link(known):
        check_main_file(path)
        with Opened(path) as file:
            file.check()
    return known


def _read(path: bytes, stamp: Stamp, keeper: _Keeper, limits: Limits, begun: int) -> Remembered:
    if stat.S_ISLNK(stamp.mode):
        return remembered(stamp, keeper.keep(BLOB, os.readlink(path)), begun=begun)
    data, status = read_regular(path, most=limits.file_bytes)
    if (status.st_dev, status.st_ino) != (stamp.device, stamp.inode):
        raise Unreadable("it was replaced while it was looked at; the next snapshot has it")
    database = kind_of(data) == "database"
    return remembered(stamp, keeper.keep(BLOB, data), begun=begun, database=database)


def read_regular(path: bytes, *, most: int, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Read a regular file of at most so many bytes, never over a link at the end of its path.

    Raise `Belongs` or `InUse` for a store, and for a database that somebody works with.
    """
    check_main_file(path, folder=folder)
    with Opened(path, folder=folder) as file:
        file.check()
        chunks, size = [file.head], len(file.head)
        if size == HEAD:  # less means that the file ends there
            chunk = max(file.status.st_size - size + 1, _CHUNK)
            while size <= most and (more := os.pread(file.descriptor, chunk, size)):
                chunks.append(more)
                size += len(more)
            file.check()
    if size > most:
        raise Unreadable(f"it grew beyond {most:,} bytes while it was read")
    return b"".join(chunks), file.status


def _entry(file: Remembered) -> FileEntry:
    return (
        FileEntry(True, 0, file.blob)
        if _is_link(file)
        else FileEntry(False, permissions(file.stamp.mode), file.blob)
    )


def _root(
    files: dict[bytes, Remembered], folders: dict[bytes, int], in_use: list[bytes], keeper: _Keeper
) -> str:
    modes = {path: permissions(file.stamp.mode) for path, file in files.items() if not _is_link(file)}
    filled = {path.rpartition(b"/")[0] for paths in (files, folders) for path in paths}
    written = Modes.of(modes, folders, empty=folders.keys() - filled).encoded()
    lines = [
        Leaf(FILES.encode(), FOLDER, _files_tree(files, folders, keeper)),
        Leaf(MODES.encode(), FILE, keeper.keep_frame(BLOB, written)),
    ]
    if in_use:
        names = b"".join(path + b"\0" for path in sorted(in_use))
        lines.append(Leaf(LEFT.encode(), FILE, keeper.keep_frame(BLOB, names)))
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
