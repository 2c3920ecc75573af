"""What of our own may stand in a work tree: stores, the home, snapshots, memories, shadow repositories.

It is never captured, restored over or removed, whatever the ignore rules say. It is known by its path
and by its inode, so that no link and no second name leads around that; what no setting of this process
names is recognized by its content (`databases`, and `is_shadow_repository`).
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, Self

from ..errors import CheckpointError, NewerFormat
from ..home import SNAPSHOT_FOLDER as SNAPSHOTS
from ..stores.sqlite.connection import APPLICATION
from .folder import read_about
from .objects import parents
from .values import Listing

__all__ = [
    "HEAD",
    "IN_USE",
    "NOTHING",
    "OURS",
    "SIDES",
    "Belongings",
    "Belongs",
    "InUse",
    "Kind",
    "Opened",
    "Owned",
    "Unreadable",
    "check_main_file",
    "is_in_use",
    "is_shadow_repository",
    "kind_of",
    "main_file",
    "side_files",
]

# SQLite databases in a work tree: which are stores of ours, which are another program's and in use.


Kind = Literal["file", "database", "store"]

HEAD = 4096
"""Bytes at the start of a file that say what it is."""

OURS = "it belongs to Turnstate, and no checkpoint holds or changes it"
IN_USE = "it belongs to an SQLite database in use; close what works with it to have it kept and restored"

SIDES = (b"-wal", b"-shm", b"-journal")
"""How the names of the files end that SQLite keeps beside a database."""

_DATABASE = b"SQLite format 3\0"
_APPLICATION = slice(68, 72)
_MEMORY = b'{"kind":"user","version":'  # the first line of a memory engine's file
_TORN, _LINES = b".torn", b".jsonl"
_BESIDE = (*SIDES, _TORN)
_SIDE_STARTS = (
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    (3_007_000).to_bytes(4, sys.byteorder),
)
_READING = os.O_RDONLY | os.O_NONBLOCK
_MOST_DESCRIPTORS = 1024  # looked at where the system does not list them

_lock = threading.Lock()
_aside = dict[tuple[int, int], list[int]]()


class Unreadable(Exception):
    """A file cannot be kept as it is now."""


class Belongs(Unreadable):
    """A file is a store of ours, or stands beside one."""

    def __init__(self) -> None:
        super().__init__(OURS)


class InUse(Unreadable):
    """A file is a database that somebody works with, or stands beside one."""

    def __init__(self) -> None:
        super().__init__(IN_USE)


class Opened:
    """A regular file that is open to be read by `pread`, and its first bytes.

    Closing it drops no lock of this process on a database.
    """

    __slots__ = ("_folder", "_name", "descriptor", "head", "status")

    def __init__(self, name: bytes, *, folder: int | None = None, follow: bool = False) -> None:
        self._name, self._folder, self.head = name, folder, b""
        descriptor = _take_back(name, folder, follow=follow) if _aside else None
        if descriptor is None:
            descriptor = os.open(name, _READING | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
        self.descriptor = descriptor
        try:
            self.status = os.fstat(descriptor)
            if not stat.S_ISREG(self.status.st_mode):
                raise Unreadable("it is not a regular file any more")
            self.head = os.pread(descriptor, HEAD, 0)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Raise `Belongs` for a store, and `InUse` for a database that somebody works with.

        Raise `Unreadable` if a database was written since it was opened: ask again after it was read.
        """
        kind = kind_of(self.head, self._name)
        if kind == "store":
            raise Belongs
        if kind == "file" and self.head:
            return
        held = kind == "database" and (self._name.endswith(SIDES) or self._is_held())
        if held or is_in_use(self._name, folder=self._folder):
            raise InUse
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.status.st_size, self.status.st_mtime_ns):
            raise Unreadable("it was written while it was read; the next snapshot has it")

    def close(self) -> None:
        """Close the file, or set it aside while this process has the database open elsewhere."""
        if kind_of(self.head, self._name) != "file" and self._is_held():
            with _lock:
                _aside.setdefault((self.status.st_dev, self.status.st_ino), []).append(self.descriptor)
        else:
            os.close(self.descriptor)

    def _is_held(self) -> bool:
        """Tell whether this process has the file open by a descriptor that is not from here."""
        try:
            numbers = {int(number) for number in os.listdir("/dev/fd")}
        except OSError:
            numbers = set(range(_MOST_DESCRIPTORS))
        with _lock:
            numbers -= {self.descriptor, *(one for kept in _aside.values() for one in kept)}
        for number in numbers:
            with suppress(OSError):  # closed meanwhile
                if os.path.samestat(os.fstat(number), self.status):
                    return True
        return False


def kind_of(head: bytes, name: bytes = b"") -> Kind:
    """Tell what a file is from its first bytes; the name matters for what stands beside a database."""
    if head.startswith(_DATABASE):
        return "store" if head[_APPLICATION] == APPLICATION.to_bytes(4, "big") else "database"
    if head.startswith(_MEMORY) and b'"tenant":' in head:
        return "store"
    return "database" if name.endswith(SIDES) and head.startswith(_SIDE_STARTS) else "file"


def main_file(path: bytes) -> bytes | None:
    """Return the path of the file that this one would belong to, judged by its name."""
    if not path.endswith(_BESIDE):
        return None
    return path.removesuffix(_TORN) + _LINES if path.endswith(_TORN) else path.rpartition(b"-")[0]


def side_files(path: bytes) -> tuple[bytes, ...]:
    """Return the paths of the files that SQLite would keep beside a database."""
    return tuple(path + side for side in SIDES)


def is_in_use(path: bytes, *, folder: int | None = None) -> bool:
    """Tell whether files beside a database say that somebody works with it, or died doing so.

    An empty rollback journal is what some journal modes leave behind after each transaction.
    """
    for side in SIDES:
        with suppress(OSError):  # it is not there, or its name would be too long
            status = os.stat(path + side, dir_fd=folder, follow_symlinks=False)
            if status.st_size or side != SIDES[-1]:
                return True
    return False


def check_main_file(path: bytes, *, folder: int | None = None) -> None:
    """Raise if a file stands beside a store or a database; beside an empty one, if it is SQLite's."""
    main = main_file(path)
    if main is None:
        return
    try:
        with Opened(main, folder=folder) as file:
            kind = kind_of(file.head) if file.head or path.endswith(_TORN) else "database"
    except (OSError, Unreadable):
        return
    if kind == "store":
        raise Belongs
    if kind == "database":
        raise InUse


def _take_back(path: bytes, folder: int | None, *, follow: bool) -> int | None:
    """Return the descriptor of this file that was set aside earlier, if one was."""
    status = os.stat(path, dir_fd=folder, follow_symlinks=follow)
    with _lock:
        kept = _aside.get((status.st_dev, status.st_ino))
        return kept.pop() if kept else None


_SNAPSHOTS = b"/" + os.fsencode(SNAPSHOTS)
_SHADOW = {b"about.json", b"lock", b"repository"}
_MOST_LINKS = 40  # on the way to one file, as in the kernel


class Owned(NamedTuple):
    """The paths in a work tree, and the inodes, that are ours at one moment."""

    paths: frozenset[bytes] = frozenset()
    inodes: frozenset[tuple[int, int]] = frozenset()

    def covers(self, path: bytes) -> bool:
        """Tell whether a path is ours, or leads into a folder of ours."""
        return any(one in self.paths or (b"/" + one).endswith(_SNAPSHOTS) for one in (path, *parents(path)))

    def is_at(self, path: bytes, device: int, inode: int) -> bool:
        """Tell whether what stands at a path is ours."""
        return (device, inode) in self.inodes or path in self.paths or (b"/" + path).endswith(_SNAPSHOTS)

    def with_paths(self, paths: Iterable[bytes]) -> Owned:
        """Add what was found to be ours."""
        return self._replace(paths=self.paths.union(paths))

    def without(self, listing: Listing) -> Listing:
        """Leave out of a listing, which names the folders of all files, what is ours."""
        covered = {path for path in listing.folders if self.covers(path)}
        files = {
            path: entry
            for path, entry in listing.files.items()
            if path not in self.paths and path.rpartition(b"/")[0] not in covered
        }
        return Listing(files, {path: mode for path, mode in listing.folders.items() if path not in covered})


NOTHING = Owned()


class Belongings:
    """The files and folders of ours that settings name, in a work tree or elsewhere."""

    def __init__(self, work_tree: Path, places: Iterable[str | os.PathLike[str]]) -> None:
        self._top = os.fsencode(work_tree)
        self._places = [os.fsencode(Path(place).absolute()) for place in places]

    def now(self) -> Owned:
        """Look where they are at this moment, since files are replaced and links are changed."""
        paths, inodes = set[bytes](), set[tuple[int, int]]()
        for place in self._places:
            real, links = _followed(place)
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
        """Return those of the real paths that are in the work tree, as seen from it."""
        top = self._top.rstrip(b"/") + b"/"
        return [path[len(top) :] for path in paths if path.startswith(top)]


def is_shadow_repository(path: bytes, names: Set[bytes]) -> bool:
    """Tell whether a folder with these names in it holds somebody's checkpoints."""
    folder = Path(os.fsdecode(path))
    if not names >= _SHADOW or not (folder / "about.json").is_file():
        return False
    try:
        read_about(folder)
    except NewerFormat:
        return True
    except CheckpointError:
        return False
    return True


def _followed(path: bytes) -> tuple[bytes, list[bytes]]:
    """Return where a path leads to, and the links on the way, each by its real path."""
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
            target = os.readlink(real) if len(links) < _MOST_LINKS else None
        except OSError:
            target = None
        if target is not None:
            links.append(real)
            names.extend(reversed(target.split(b"/")))
            real = b"/" if target.startswith(b"/") else os.path.dirname(real)
    return real, links
