"""An open folder: files appear in it whole or not at all, and links are not followed.

A file is written under a temporary name, forced to the disk, and only then gets its name, which is
chosen at that moment. Writers need no lock: no two of them ever touch the same file. A temporary file
that a killed writer left behind is nobody's snapshot, and goes once it is old.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import files as durable
from ..home import Key

__all__ = [
    "DAMAGED",
    "SUFFIX",
    "Folder",
    "Unreadable",
    "file_name",
    "folder_name",
    "is_own",
    "newest_first",
    "next_number",
]

DAMAGED = ".damaged"

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
_LEFT_BEHIND = 3_600  # seconds; a live writer needs one or two, and one that is overtaken writes again
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class Unreadable(Exception):
    """A file is left alone, since reading it could hang, exhaust the memory or lead elsewhere."""


class Folder:
    """An open folder; `opened` gives one."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._folder = descriptor

    @classmethod
    @contextmanager
    def opened(cls, anchor: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[Folder]:
        """Go from the anchor down the parts, following no link; with ``make``, make what is missing."""
        if make:
            durable.make_folder(anchor)
        folder = os.open(anchor, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                above, folder = folder, -1
                try:
                    folder = durable.enter(above, part, make=make)
                finally:
                    os.close(above)
            yield cls(anchor.joinpath(*parts), folder)
        finally:
            if folder >= 0:
                os.close(folder)

    def names(self) -> list[str]:
        """List what is there."""
        return os.listdir(self._folder)

    def read(self, name: str, *, limit: int) -> bytes:
        """Read a regular file of at most so many bytes."""
        self._insist_on_a_file(os.stat(name, dir_fd=self._folder, follow_symlinks=False), limit)
        with open(os.open(name, _READING, dir_fd=self._folder), "rb") as file:
            self._insist_on_a_file(os.fstat(file.fileno()), limit)
            data = file.read(limit + 1)
        if len(data) > limit:
            raise Unreadable(f"it grew beyond {limit:,} bytes")
        return data

    def probe(self) -> None:
        """Write a file and remove it, or raise the `OSError` that a real one would meet."""
        temporary = f".{secrets.token_hex(8)}.tmp"
        durable.write_new(temporary, b"probe", folder=self._folder)
        self.remove(temporary)

    def add(self, data: bytes, *, name: Callable[[], str]) -> str:
        """Add a file that is on the disk, whole, before it has its name; the name is asked for last."""
        temporary = f".{secrets.token_hex(8)}.tmp"
        durable.write_new(temporary, data, folder=self._folder)
        try:
            final = name()
            os.rename(temporary, final, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with suppress(OSError):
                self.remove(temporary)
            raise
        durable.sync_folder(self._folder)
        return final

    def remove(self, name: str) -> None:
        """Remove a file, or a link but not what it leads to."""
        os.unlink(name, dir_fd=self._folder)

    def erase(self) -> int:
        """Remove every file, then the folder, unless there are folders in it; return how many files went."""
        files = [name for name in self.names() if not self._is_folder(name)]
        for name in files:
            with suppress(FileNotFoundError):
                self.remove(name)
        durable.sync_folder(self._folder)
        with suppress(OSError):
            os.rmdir(self.path)
        return len(files)

    def set_aside(self, name: str) -> str:
        """Rename a damaged file, so that it is kept and not tried again; return the name it has now."""
        with suppress(OSError):
            os.rename(name, name + DAMAGED, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            return name + DAMAGED
        return name

    def sweep(self, *, beside: str) -> None:
        """Remove temporary files that are far older than a file just written, by the same clock."""
        now = os.stat(beside, dir_fd=self._folder).st_mtime
        for name in filter(_TEMPORARY.fullmatch, self.names()):
            written = os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mtime
            if abs(now - written) > _LEFT_BEHIND:
                self.remove(name)

    def _is_folder(self, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode)

    def _insist_on_a_file(self, status: os.stat_result, limit: int) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("it is not a regular file")
        if status.st_size > limit:
            raise Unreadable(f"it has {status.st_size:,} bytes; at most {limit:,} are read")


# Names on the disk: a folder for every session id, and file names that sort as they were written.


SUFFIX = ".json"

_HARMLESS = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_HASHED = "="
_NAME = re.compile(r"(?P<number>[0-9]{16})-(?P<random>[0-9a-f]{16})-(?P<mark>[0-9a-f]{16})\.json")
_PURPOSE = "snapshot name"
_MARK_DIGITS = 16


def folder_name(session_id: str) -> str:
    """Name the folder of a session."""
    if _HARMLESS.fullmatch(session_id):
        return session_id
    return _HASHED + hashlib.sha256(session_id.encode()).hexdigest()


def file_name(number: int, *, session: str, key: Key) -> str:
    """Name a new snapshot of a session; nobody else gives the same name."""
    stem = f"{number:016d}-{secrets.token_hex(8)}"
    return f"{stem}-{_mark(stem, session, key)}{SUFFIX}"


def is_own(name: str, *, session: str, key: Key | None) -> bool:
    """Return True if this installation gave the name."""
    if key is None or not _NAME.fullmatch(name):
        return False
    stem, _, mark = name.removesuffix(SUFFIX).rpartition("-")
    return mark == _mark(stem, session, key)


def newest_first(names: Iterable[str]) -> list[str]:
    """Sort by number; names of another form come last."""
    return sorted(names, key=lambda name: (_number(name), name), reverse=True)


def next_number(own: Iterable[str], *, now: int) -> int:
    """Return the time in milliseconds, or more where a name of this installation has as much already."""
    return max([now, *(_number(name) + 1 for name in own)])


def _number(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else -1


def _mark(stem: str, session: str, key: Key) -> str:
    return key.sign(_PURPOSE, session.encode(), stem.encode())[:_MARK_DIGITS]
