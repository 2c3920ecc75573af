"""Files of Turnstate and databases in use, which snapshots leave out and restores leave alone.

Stores, the home, session snapshots, memories and shadow repositories may be inside a work tree. They are
never captured, overwritten or removed, whatever the ignore rules say. Those that settings name are
recognized by path and by inode, so a link or a second name cannot bypass the protection; others are
recognized by content. SQLite databases of other programs are captured and restored only while they are not
in use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from .. import folder_gate
from ..errors import CheckpointError, NewerFormat
from ..own_files import HEAD, SHADOW_NAMES, SIDES, SNAPSHOT_FOLDER, kind_of, main_file, side_files
from .contents import parents
from .folder import read_about
from .values import Listing

OURS = "it belongs to Turnstate; checkpoints neither hold nor change it"
IN_USE = (
    "it belongs to an SQLite database in use; close the programs that use it to have it kept and restored"
)

_READING = folder_gate.READING | os.O_NONBLOCK
_CHUNK = 1 << 20


class UnreadableFile(Exception):
    """A file cannot be captured as it is now."""


class OwnFile(UnreadableFile):
    """A file is a store of ours, or belongs to one."""

    def __init__(self) -> None:
        super().__init__(OURS)


class InUse(UnreadableFile):
    """A file is a database in use, or belongs to one."""

    def __init__(self) -> None:
        super().__init__(IN_USE)


class Opened:
    """A regular file, open for `pread`, and its first bytes; raises OwnFile for a store that is open here."""

    __slots__ = ("_folder", "_name", "descriptor", "head", "status")

    def __init__(self, name: bytes, *, folder: int | None = None, follow: bool = False) -> None:
        self._name, self._folder, self.head = name, folder, b""
        flags = _READING | (0 if follow else os.O_NOFOLLOW)
        try:
            self.descriptor = folder_gate.open_file(name, flags, folder=folder)
        except folder_gate.OpenHere:
            raise OwnFile from None
        try:
            self.status = os.fstat(self.descriptor)
            if not stat.S_ISREG(self.status.st_mode):
                raise UnreadableFile("it is no longer a regular file")
            self.head = os.pread(self.descriptor, HEAD, 0)
        except BaseException:  # the gate must close it: a plain close would drop the locks of SQLite
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Raise OwnFile for a store and InUse for a database in use.

        Raise UnreadableFile if a database was written since it was opened; call it again after reading.
        """
        kind = kind_of(self.head, self._name)
        if kind == "store":
            raise OwnFile
        if kind == "file" and self.head:
            return
        held = kind == "database" and (
            self._name.endswith(SIDES) or folder_gate.is_open_elsewhere(self.descriptor)
        )
        if held or is_in_use(self._name, folder=self._folder):
            raise InUse
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns):
            raise UnreadableFile("it was written while it was read; the next snapshot will have it")

    def close(self) -> None:
        """Close the file."""
        folder_gate.close(self.descriptor)


def is_in_use(path: bytes, *, folder: int | None = None) -> bool:
    """Return True if the side files of a database show that a program uses it, or crashed while using it.

    Some journal modes leave an empty rollback journal after each transaction; that does not count.
    """
    for side in SIDES:
        with suppress(OSError):  # it is missing, or its name is too long
            status = os.stat(path + side, dir_fd=folder, follow_symlinks=False)
            if status.st_size or side != SIDES[-1]:
                return True
    return False


def check_main_file(path: bytes, *, folder: int | None = None) -> None:
    """Raise OwnFile or InUse if a file belongs, by its name, to a store or a database."""
    main = main_file(path)
    if main is None:
        return
    try:
        with Opened(main, folder=folder) as file:
            kind = kind_of(file.head) if file.head else "database"
    except OwnFile:
        raise
    except (OSError, UnreadableFile):
        return
    if kind == "store":
        raise OwnFile
    if kind == "database":
        raise InUse


def read_regular(path: bytes, *, most: int, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the content and stat of a regular file of at most ``most`` bytes; a link is refused.

    Raise OwnFile for a store and InUse for a database in use.
    """
    check_main_file(path, folder=folder)
    with Opened(path, folder=folder) as file:
        file.check()
        chunks, size = [file.head], len(file.head)
        if size == HEAD:  # otherwise the head is the whole file
            chunk = max(file.status.st_size - size + 1, _CHUNK)
            while size <= most and (more := os.pread(file.descriptor, chunk, size)):
                chunks.append(more)
                size += len(more)
            file.check()
    if size > most:
        raise UnreadableFile(f"it grew beyond {most:,} bytes while it was read")
    return b"".join(chunks), file.status


_SNAPSHOTS = b"/" + os.fsencode(SNAPSHOT_FOLDER)
_MAX_LINKS = 40  # per path, as in the kernel


class Owned(NamedTuple):
    """The paths and inodes in a work tree that belong to Turnstate at one moment."""

    paths: frozenset[bytes] = frozenset()
    inodes: frozenset[tuple[int, int]] = frozenset()

    def covers(self, path: bytes) -> bool:
        """Return True if a path is ours or inside a folder of ours."""
        return any(one in self.paths or (b"/" + one).endswith(_SNAPSHOTS) for one in (path, *parents(path)))

    def is_at(self, path: bytes, device: int, inode: int) -> bool:
        """Return True if the file at a path is ours."""
        return (device, inode) in self.inodes or path in self.paths or (b"/" + path).endswith(_SNAPSHOTS)

    def with_paths(self, paths: Iterable[bytes]) -> Owned:
        """Return a copy with more paths."""
        return self._replace(paths=self.paths.union(paths))

    def without(self, listing: Listing) -> Listing:
        """Return a listing without our files; it must include the folders of all files."""
        covered = {path for path in listing.folders if self.covers(path)}
        files = {
            path: entry
            for path, entry in listing.files.items()
            if path not in self.paths and path.rpartition(b"/")[0] not in covered
        }
        return Listing(files, {path: mode for path, mode in listing.folders.items() if path not in covered})


NOTHING = Owned()


class OwnPlaces:
    """The files and folders of Turnstate that settings name, in the work tree or elsewhere."""

    def __init__(self, work_tree: Path, places: Iterable[str | os.PathLike[str]]) -> None:
        self._top = os.fsencode(work_tree)
        self._places = [os.fsencode(Path(place).absolute()) for place in places]

    def now(self) -> Owned:
        """Return their current paths and inodes, which vary as files are replaced and links change."""
        paths, inodes = set[bytes](), set[tuple[int, int]]()
        for place in self._places:
            real, links = _resolved_links(place)
            paths.update(self._inside(links))
            for one in (real, *side_files(real)):
                paths.update(self._inside([one]))
                try:
                    status = os.stat(one)
                except OSError:
                    continue
                inodes.add((status.st_dev, status.st_ino))
        return Owned(frozenset(paths), frozenset(inodes))

    def _inside(self, paths: Iterable[bytes]) -> Iterable[bytes]:
        """Return the paths that are inside the work tree, relative to it."""
        top = self._top.rstrip(b"/") + b"/"
        return [path[len(top) :] for path in paths if path.startswith(top)]


def is_shadow_repository(path: bytes, names: Set[bytes]) -> bool:
    """Return True if a folder with these names in it is a shadow repository."""
    folder = Path(os.fsdecode(path))
    if not names >= SHADOW_NAMES or not (folder / "about.json").is_file():
        return False
    try:
        read_about(folder)
    except NewerFormat:
        return True
    except CheckpointError:
        return False
    return True


def _resolved_links(path: bytes) -> tuple[bytes, list[bytes]]:
    """Return the real path that a path leads to, and the real paths of the links on the way."""
    links, names, real = list[bytes](), path.split(b"/")[::-1], b"/"
    while names:
        name = names.pop()
        if name in (b"", b"."):
            continue
        if name == b"..":
            real = os.path.dirname(real)
            continue
        real = os.path.join(real, name)
        try:
            target = os.readlink(real) if len(links) < _MAX_LINKS else None
        except OSError:
            target = None
        if target is not None:
            links.append(real)
            names.extend(reversed(target.split(b"/")))
            real = b"/" if target.startswith(b"/") else os.path.dirname(real)
    return real, links
