"""Finding: which files a path stands for now, with bounded work and no way out of the allowed folders.

What the user names may lie anywhere. What a folder or a pattern *finds* must lie, all links followed,
in the workspace or in the named folder; a link that leads elsewhere is told and left alone. A link
inside the workspace is not followed out of it on the word of an agent's configuration either: the
configuration was trusted, the link was not. ``**`` does not go through links to folders, so no
circle is endless.

The order is that of names: the files of a folder, then its subfolders. It needs no clock and no
luck; only a folder with more entries than may be looked at is cut as the system lists it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from msgspec import Struct

from .pattern import ANY_FILE, Glob, Positions, Workspace, is_inside, split
from .state import Dropped, Owner, Reason, spelled

__all__ = [
    "MOST_BYTES",
    "MOST_ENTRIES",
    "MOST_FILES",
    "Candidate",
    "Found",
    "ReadCache",
    "Reading",
    "Refused",
    "checked_status",
    "find",
    "refusal",
]

MOST_ENTRIES = 100_000
"""Directory entries that are looked at for one path: a fraction of a second on a local disk."""

MOST_FILES = 10_000
"""Files that one path may stand for; more than any model's window can hold."""

_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class Candidate(Struct, frozen=True):
    """A file that may be sent: the path that is shown, and where it lies, all links followed."""

    shown: str
    real: str


class Found(Struct, frozen=True):
    """What a path stands for, and what there is to say about it."""

    files: tuple[Candidate, ...] = ()
    dropped: tuple[Dropped, ...] = ()


class _Folder(Struct, frozen=True):
    real: str
    shown: str
    positions: Positions


def find(path: str, owner: Owner, workspace: Workspace) -> Found:
    """Find the files that a path stands for."""
    if not path or "\0" in path:
        return Found((), (Dropped(spelled(path), "missing", "no file can have this name"),))
    parts = split(path)
    place, named = workspace.locate(parts)
    try:
        real = os.path.realpath(place, strict=True)
        is_folder = stat.S_ISDIR(os.stat(real).st_mode)
    except OSError as error:
        return Found((), (refusal(path, error),))
    roots = workspace.real_roots()
    if owner == "agent" and workspace.holds(place) and not _within(real, roots):
        return Found((), (_outside(path, "; add its target, or add it for the session"),))
    if not is_folder:
        found = () if parts.parts else (Candidate(spelled(named), real),)
        return Found(found, () if found else (Dropped(spelled(path), "missing", "it matches no file"),))
    walk = _Walk(path, Glob(parts.parts or ANY_FILE), (*roots, real))
    walk.run(real, named)
    return Found(tuple(walk.files), tuple(walk.dropped))


def refusal(path: str, error: OSError) -> Dropped:
    """Say that the system refused a path."""
    if isinstance(error, _NOT_THERE):
        return Dropped(spelled(path), "missing", "there is no such file")
    return Dropped(spelled(path), "unreadable", error.strerror or type(error).__name__)


class _Walk:
    """One search: folders still to be looked at, entries still allowed, files found."""

    def __init__(self, path: str, glob: Glob, roots: tuple[str, ...]) -> None:
        self.files: list[Candidate] = []
        self.dropped: list[Dropped] = []
        self._path, self._glob, self._roots = path, glob, roots
        self._left = MOST_ENTRIES
        self._stopped = ""

    def run(self, real: str, shown: str) -> None:
        """Look through a folder and what the pattern names below it."""
        folders = [_Folder(real, shown, self._glob.start)]
        while folders and not self._stopped:
            folder = folders.pop()
            folders += reversed(
                [below for entry in self._listed(folder) for below in self._met(folder, entry)]
            )
        if self._stopped:
            self._tell(self._path, "stopped", f"{self._stopped} and looked no further; name a narrower path")
        elif not self.files and not self.dropped:
            self._tell(self._path, "missing", "it matches no file")

    def _listed(self, folder: _Folder) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder.real) as listing:
                entries = list(islice(listing, self._left + 1))
        except OSError as error:
            self.dropped.append(refusal(folder.shown or ".", error))
            return []
        if len(entries) > self._left:
            entries.pop()
            self._stopped = f"stopped after {MOST_ENTRIES:,} directory entries"
        self._left -= len(entries)
        return sorted(entries, key=lambda entry: entry.name)

    def _met(self, folder: _Folder, entry: os.DirEntry[str]) -> Iterator[_Folder]:
        """Take an entry if it is a file that is meant; return it if it is a folder to be looked at."""
        positions, name = folder.positions, entry.name
        try:
            if entry.is_symlink():
                yield from self._followed(folder, entry)
            elif entry.is_dir(follow_symlinks=False):
                if inside := self._glob.into(positions, name) | self._glob.below(positions, name):
                    yield _Folder(entry.path, os.path.join(folder.shown, name), inside)
            elif self._glob.takes(positions, name):
                self._take(os.path.join(folder.shown, name), entry.path)
        except OSError as error:
            if self._glob.takes(positions, name):
                self.dropped.append(refusal(os.path.join(folder.shown, name), error))

    def _followed(self, folder: _Folder, entry: os.DirEntry[str]) -> Iterator[_Folder]:
        """Go where a link leads if that is allowed, but through a folder only where a part names the link."""
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
            yield _Folder(real, shown, named)

    def _take(self, shown: str, real: str) -> None:
        if len(self.files) < MOST_FILES:
            self.files.append(Candidate(spelled(shown), real))
        else:
            self._stopped = f"stopped after {MOST_FILES:,} files"

    def _tell(self, path: str, reason: Reason, why: str) -> None:
        self.dropped.append(Dropped(spelled(path), reason, why))


def _within(real: str, roots: tuple[str, ...]) -> bool:
    return any(is_inside(real, root) for root in roots)


def _outside(path: str, advice: str = "") -> Dropped:
    return Dropped(
        spelled(path), "outside", f"a link that leads out of the workspace is not followed{advice}"
    )


# Reading: the text of a file, never at the price of a hang, and read again only when it may have changed.


MOST_BYTES = 4 * 1024 * 1024
"""Of one file; about a million tokens, more than three quarters of nearly any model's window."""

TICK = 2_000_000_000
"""Nanoseconds: the coarsest clock that a file system in use has (FAT)."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1024 * 1024
_BINARY = "it is no UTF-8 text"


class Refused(Exception):
    """A file is not sent, and why."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


class Reading(Struct, frozen=True):
    """What a file held when it was read; no text if it is binary."""

    trace: tuple[int, ...]
    at: int
    sha256: str
    text: str | None

    def holds(self, status: os.stat_result) -> bool:
        """Return True if a file with this status must still hold the same."""
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        return self.trace == _trace(status) and changed < self.at - TICK


class ReadCache:
    """What was read last of each file."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def text(self, place: str, status: os.stat_result, clock: Callable[[], int]) -> tuple[str, str]:
        """Return the text of a file and the hash of its bytes. Raise Refused if it must not be read."""
        known = self._readings.get(place)
        if known is None or not known.holds(status):
            known = self._readings[place] = _read(place, clock())
        if known.text is None:
            raise Refused("binary", _BINARY)
        return known.text, known.sha256

    def keep(self, places: Collection[str]) -> None:
        """Forget all other files."""
        self._readings = {place: one for place, one in self._readings.items() if place in places}


def checked_status(status: os.stat_result) -> os.stat_result:
    """Refuse what is no regular file, or too large to be read."""
    if not stat.S_ISREG(status.st_mode):
        raise Refused("special", "it is not a regular file")
    if status.st_size > MOST_BYTES:
        raise Refused("huge", f"it has {status.st_size:,} bytes; at most {MOST_BYTES:,} are read")
    return status


def _read(place: str, now: int) -> Reading:
    file = os.open(place, _FLAGS)
    try:
        # The trace from before the reading: what changes meanwhile is seen as changed next time.
        trace = _trace(checked_status(os.fstat(file)))
        data = _bytes(file)
    finally:
        os.close(file)
    return Reading(trace, now, hashlib.sha256(data).hexdigest(), _decoded(data))


def _bytes(file: int) -> bytes:
    data = bytearray()
    while piece := os.read(file, _CHUNK):
        data += piece
        if len(data) > MOST_BYTES:
            raise Refused("huge", f"it grew beyond {MOST_BYTES:,} bytes")
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
