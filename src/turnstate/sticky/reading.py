"""Finds and reads the files that a path matches, with bounded work and only in allowed folders.

A path that the user names may be anywhere. A file that a folder or a pattern *finds* must be, with all
links resolved, in the workspace or in the named folder; a link that leads elsewhere is reported and not
followed. A path from an agent's configuration cannot leave the workspace through a link either: the
configuration is trusted, the link is not. ``**`` does not follow links to folders, so there are no
endless cycles.

Files are sorted by name: first the files of a folder, then its subfolders. If a folder has more entries than
the limit, the first ones that the system lists are used. A file is read again only if it may have changed,
and reading never blocks on a FIFO or a device.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from msgspec import Struct

from .. import folder_gate
from .pattern import ANY_FILE, Glob, Positions, Workspace, is_inside, split
from .sticky_paths import Dropped, Owner, Reason, spelled

MAX_ENTRIES = 100_000
"""The most directory entries read for one path: a fraction of a second on a local disk."""

MAX_FILES = 10_000
"""The most files that one path may match; more than any model's window can hold."""

_MISSING = (FileNotFoundError, NotADirectoryError)


class Candidate(Struct, frozen=True):
    """A file that may be sent: the path as shown, and its real path."""

    shown: str
    real: str


class FoundFiles(Struct, frozen=True):
    """The files that a path matches, and what was left out."""

    files: tuple[Candidate, ...] = ()
    dropped: tuple[Dropped, ...] = ()


class _PendingFolder(Struct, frozen=True):
    real: str
    shown: str
    positions: Positions


def find(path: str, owner: Owner, workspace: Workspace) -> FoundFiles:
    """Return the files that a path matches."""
    if not path or "\0" in path:
        return FoundFiles((), (Dropped(spelled(path), "missing", "this is not a valid file name"),))
    parts = split(path)
    place, named = workspace.locate(parts)
    try:
        real = os.path.realpath(place, strict=True)
        is_folder = stat.S_ISDIR(os.stat(real).st_mode)
    except OSError as error:
        return FoundFiles((), (refusal(path, error),))
    roots = workspace.real_roots()
    if owner == "agent" and workspace.holds(place) and not _within(real, roots):
        return FoundFiles((), (_outside(path, "; add its target, or add it for the session"),))
    if not is_folder:
        found = () if parts.parts else (Candidate(spelled(named), real),)
        return FoundFiles(found, () if found else (Dropped(spelled(path), "missing", "no file matches it"),))
    walk = _Search(path, Glob(parts.parts or ANY_FILE), (*roots, real))
    walk.run(real, named)
    return FoundFiles(tuple(walk.files), tuple(walk.dropped))


def refusal(path: str, error: OSError) -> Dropped:
    """Return a path that is left out because the system refused access to it."""
    if isinstance(error, _MISSING):
        return Dropped(spelled(path), "missing", "there is no such file")
    return Dropped(spelled(path), "unreadable", error.strerror or type(error).__name__)


class _Search:
    """A search: the files found, what was left out, and how many entries may still be read."""

    def __init__(self, path: str, glob: Glob, roots: tuple[str, ...]) -> None:
        self.files: list[Candidate] = []
        self.dropped: list[Dropped] = []
        self._path, self._glob, self._roots = path, glob, roots
        self._left = MAX_ENTRIES
        self._stopped = ""

    def run(self, real: str, shown: str) -> None:
        """Search a folder and the subfolders that the pattern can match."""
        folders = [_PendingFolder(real, shown, self._glob.start)]
        while folders and not self._stopped:
            folder = folders.pop()
            folders += reversed(
                [below for entry in self._listed(folder) for below in self._subfolders(folder, entry)]
            )
        if self._stopped:
            self._drop(self._path, "stopped", f"{self._stopped}; use a narrower path")
        elif not self.files and not self.dropped:
            self._drop(self._path, "missing", "no file matches it")

    def _listed(self, folder: _PendingFolder) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder.real) as listing:
                entries = list(islice(listing, self._left + 1))
        except OSError as error:
            self.dropped.append(refusal(folder.shown or ".", error))
            return []
        if len(entries) > self._left:
            entries.pop()
            self._stopped = f"stopped after {MAX_ENTRIES:,} directory entries"
        self._left -= len(entries)
        return sorted(entries, key=lambda entry: entry.name)

    def _subfolders(self, folder: _PendingFolder, entry: os.DirEntry[str]) -> Iterator[_PendingFolder]:
        """Keep an entry if it is a matching file; yield it if it is a folder to search."""
        positions, name = folder.positions, entry.name
        try:
            if entry.is_symlink():
                yield from self._through_link(folder, entry)
            elif entry.is_dir(follow_symlinks=False):
                if inside := self._glob.into(positions, name) | self._glob.below(positions, name):
                    yield _PendingFolder(entry.path, os.path.join(folder.shown, name), inside)
            elif self._glob.takes(positions, name):
                self._take(os.path.join(folder.shown, name), entry.path)
        except OSError as error:
            if self._glob.takes(positions, name):
                self.dropped.append(refusal(os.path.join(folder.shown, name), error))

    def _through_link(self, folder: _PendingFolder, entry: os.DirEntry[str]) -> Iterator[_PendingFolder]:
        """Follow a link inside the allowed folders; to a folder only if a part of the pattern names it."""
        positions, name = folder.positions, entry.name
        named, passed = self._glob.into(positions, name), self._glob.below(positions, name)
        taken = self._glob.takes(positions, name)
        if not (named or passed or taken):
            return
        real, shown = os.path.realpath(entry.path, strict=True), os.path.join(folder.shown, name)
        is_folder = stat.S_ISDIR(os.stat(real).st_mode)
        if not (named or passed if is_folder else taken):
            return
        if not _within(real, self._roots):
            self.dropped.append(_outside(shown))
        elif not is_folder:
            self._take(shown, real)
        elif named:
            yield _PendingFolder(real, shown, named)

    def _take(self, shown: str, real: str) -> None:
        if len(self.files) < MAX_FILES:
            self.files.append(Candidate(spelled(shown), real))
        else:
            self._stopped = f"stopped after {MAX_FILES:,} files"

    def _drop(self, path: str, reason: Reason, why: str) -> None:
        self.dropped.append(Dropped(spelled(path), reason, why))


def _within(real: str, roots: tuple[str, ...]) -> bool:
    return any(is_inside(real, root) for root in roots)


def _outside(path: str, advice: str = "") -> Dropped:
    return Dropped(
        spelled(path), "outside", f"a link that leads out of the workspace is not followed{advice}"
    )


# CachedFile: the text of a file. Reading never hangs, and repeats only if the file may have changed.


MAX_FILE_BYTES = 4 * 1024 * 1024
"""The largest file that is read: about a million tokens, more than nearly any model's window."""

TICK_NS = 2_000_000_000
"""The coarsest timestamp of any file system in use (FAT), in nanoseconds."""

_FLAGS = folder_gate.READING | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
_CHUNK = 1024 * 1024
_BINARY = "it is not UTF-8 text"


class Refused(Exception):
    """Raised for a file that cannot be sent."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


class CachedFile(Struct, frozen=True):
    """The content of a file when it was read; the text is None if the file is binary."""

    trace: tuple[int, ...]
    at: int
    sha256: str
    text: str | None

    def holds(self, status: os.stat_result) -> bool:
        """Return True if a file with this stat must have the same content."""
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        return self.trace == _trace(status) and changed < self.at - TICK_NS


class ReadCache:
    """The content of each file when it was last read."""

    def __init__(self) -> None:
        self._readings: dict[str, CachedFile] = {}

    def text(self, place: str, status: os.stat_result, clock: Callable[[], int]) -> tuple[str, str]:
        """Return the text of a file and the hash of its bytes. Raise Refused if it must not be read."""
        known = self._readings.get(place)
        if known is None or not known.holds(status):
            known = self._readings[place] = _read(place, clock())
        if known.text is None:
            raise Refused("binary", _BINARY)
        return known.text, known.sha256

    def keep(self, places: Collection[str]) -> None:
        """Drop all other files."""
        self._readings = {place: one for place, one in self._readings.items() if place in places}


def checked_status(status: os.stat_result) -> os.stat_result:
    """Return the stat. Raise Refused if the file is not regular or too large."""
    if not stat.S_ISREG(status.st_mode):
        raise Refused("special", "it is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise Refused("huge", f"it has {status.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
    return status


def _read(place: str, now: int) -> CachedFile:
    with folder_gate.opened(place, _FLAGS) as file:
        # Stat before the read: a change during the read is noticed next time.
        trace = _trace(checked_status(os.fstat(file)))
        data = _bytes(file)
    return CachedFile(trace, now, hashlib.sha256(data).hexdigest(), _decoded(data))


def _bytes(file: int) -> bytes:
    data = bytearray()
    while piece := os.read(file, _CHUNK):
        data += piece
        if len(data) > MAX_FILE_BYTES:
            raise Refused("huge", f"it grew beyond {MAX_FILE_BYTES:,} bytes")
    return bytes(data)


def _decoded(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _trace(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
