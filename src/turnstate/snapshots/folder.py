"""The folder of a session's snapshots: files appear whole or not at all, and links are not followed.

A file is written under a temporary name, synced, and only then renamed to its final name, which is chosen
at that moment. Writers need no lock: no two of them touch the same file. A temporary file of a crashed writer
is removed once it is old. Folder names are safe for any session id. File names sort in the order in which the
files were written, and carry a mark of this installation.
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
from urllib.parse import quote

from .. import files, folder_gate
from ..home import SigningKey
from ..stores.values import Address

DAMAGED = ".damaged"

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
_STALE_SECONDS = 3_600  # a live writer needs a second or two, and retries if its file is removed
_READING = folder_gate.READING | os.O_NOFOLLOW | os.O_NONBLOCK


class RefusedFile(Exception):
    """Raised for a file that is not read because that could hang, exhaust memory or lead elsewhere."""


class SnapshotFolder:
    """An open folder; create one with `opened`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._folder = descriptor

    @classmethod
    @contextmanager
    def opened(cls, anchor: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[SnapshotFolder]:
        """Open a folder below the anchor without following links; with ``make``, create what is missing."""
        if make:
            files.make_folder(anchor)
        folder = os.open(anchor, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                above, folder = folder, -1
                try:
                    folder = files.enter(above, part, make=make)
                finally:
                    os.close(above)
            yield cls(anchor.joinpath(*parts), folder)
        finally:
            if folder >= 0:
                os.close(folder)

    def names(self) -> list[str]:
        """Return the names in the folder."""
        return os.listdir(self._folder)

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of a regular file. Raise RefusedFile if it is too large or not regular."""
        self._require_file(os.stat(name, dir_fd=self._folder, follow_symlinks=False), limit)
        with (
            folder_gate.opened(name, _READING, folder=self._folder) as descriptor,
            open(descriptor, "rb", closefd=False) as file,
        ):
            self._require_file(os.fstat(descriptor), limit)
            data = file.read(limit + 1)
        if len(data) > limit:
            raise RefusedFile(f"it grew beyond {limit:,} bytes")
        return data

    def probe(self) -> None:
        """Write and remove a file; raise the OSError that writing a snapshot would raise."""
        temporary = f".{secrets.token_hex(8)}.tmp"
        files.write_new(temporary, b"probe", folder=self._folder)
        self.remove(temporary)

    def add(self, data: bytes, *, name: Callable[[], str]) -> str:
        """Add a file that is durable before it gets its name; ``name`` is called after the write."""
        temporary = f".{secrets.token_hex(8)}.tmp"
        files.write_new(temporary, data, folder=self._folder)
        try:
            final = name()
            os.rename(temporary, final, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:  # a signal, too: a draft that is half done must not stay
            with suppress(OSError):
                self.remove(temporary)
            raise
        files.sync_folder(self._folder)
        return final

    def remove(self, name: str) -> None:
        """Remove a file, or a link but not its target."""
        os.unlink(name, dir_fd=self._folder)

    def erase(self) -> int:
        """Remove every file, then the folder unless it has subfolders; return how many files there were."""
        names = [name for name in self.names() if not self._is_folder(name)]

        for name in names:
            with suppress(FileNotFoundError):
                self.remove(name)
        files.sync_folder(self._folder)
        with suppress(OSError):
            os.rmdir(self.path)
        return len(names)

    def set_aside(self, name: str) -> str:
        """Rename a damaged file to keep it without reading it again; return its new name."""
        with suppress(OSError):
            os.rename(name, name + DAMAGED, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            return name + DAMAGED
        return name

    def sweep(self, *, beside: str) -> None:
        """Remove temporary files that are far older than a file just written, by the same clock."""
        now = os.stat(beside, dir_fd=self._folder).st_mtime
        for name in filter(_TEMPORARY.fullmatch, self.names()):
            written = os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mtime
            if abs(now - written) > _STALE_SECONDS:
                self.remove(name)

    def _is_folder(self, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode)

    def _require_file(self, status: os.stat_result, limit: int) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise RefusedFile("it is not a regular file")
        if status.st_size > limit:
            raise RefusedFile(f"it has {status.st_size:,} bytes; at most {limit:,} are read")


SUFFIX = ".json"

_HARMLESS = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_HASHED = "="
_NAME = re.compile(r"(?P<number>[0-9]{16})-(?P<random>[0-9a-f]{16})-(?P<mark>[0-9a-f]{16})\.json")
_PURPOSE = "snapshot name"
_MARK_DIGITS = 16


def snapshot_name(at: Address) -> str:
    """Return the name of a session among the snapshots of all tenants."""
    return f"{quote(at.tenant, safe='')}/{at.session}"


def folder_name(session_id: str) -> str:
    """Return the name of a session's folder."""
    if _HARMLESS.fullmatch(session_id):
        return session_id
    return _HASHED + hashlib.sha256(session_id.encode()).hexdigest()


def file_name(number: int, *, session: str, key: SigningKey) -> str:
    """Return a unique name for a new snapshot of a session."""
    stem = f"{number:016d}-{secrets.token_hex(8)}"
    return f"{stem}-{_mark(stem, session, key)}{SUFFIX}"


def is_own(name: str, *, session: str, key: SigningKey | None) -> bool:
    """Return True if this installation chose the name."""
    if key is None or not _NAME.fullmatch(name):
        return False
    stem, _, mark = name.removesuffix(SUFFIX).rpartition("-")
    return mark == _mark(stem, session, key)


def newest_first(names: Iterable[str]) -> list[str]:
    """Return the names sorted by number, newest first; names of another form come last."""
    return sorted(names, key=lambda name: (_number(name), name), reverse=True)


def next_number(own: Iterable[str], *, now: int) -> int:
    """Return the current time in milliseconds, or more if one of our own names has that number already."""
    return max([now, *(_number(name) + 1 for name in own)])


def _number(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else -1


def _mark(stem: str, session: str, key: SigningKey) -> str:
    return key.sign(_PURPOSE, session.encode(), stem.encode())[:_MARK_DIGITS]
