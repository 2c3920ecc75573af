"""A notebook: one user's lines in one file, each written once and on the disk before it counts.

The file may be written by several processes; whoever writes holds the lock of its folder, and catches
up first with what others wrote. A last line without an end is what a crash left of a delivery that was
never acknowledged: it is set aside, and the delivery comes again. Readers need no lock: lines are only
ever added, and a file that is written anew takes the old one's place at once.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .. import durable
from ..errors import NewerFormat
from . import lines
from .lines import Line, MessageLine, UserLine

__all__ = ["Notebook", "lines_of"]

_log = logging.getLogger(__name__)


class Notebook:
    """One user's file, and the identities of the lines that are known to stand in it."""

    def __init__(self, path: Path, tenant: str, user: str | None) -> None:
        self.path = path
        self._tenant, self._user = tenant, user
        self._first: bytes | None = None  # never looked at
        self._end = 0
        self._seen = set[tuple[str, ...]]()

    @property
    def torn(self) -> Path:
        """Where torn lines are set aside."""
        return self.path.with_suffix(".torn")

    def knows(self, key: str) -> bool:
        """Tell whether the delivery with this key has been written."""
        with self._opened() as file:
            self._catch_up(file)
        return ("key", key) in self._seen

    def add(self, more: Iterable[Line]) -> None:
        """Write the lines that the file does not hold yet."""
        with self._opened() as file:
            self._catch_up(file)
            new = {lines.identity(line): line for line in more}
            new = {name: line for name, line in new.items() if name not in self._seen}
            if new:
                self._write(file, b"".join(map(lines.written, new.values())))
                self._seen.update(new)

    def remove_session(self, session: str) -> int:
        """Write the file anew without a session, and say how many of its messages that removes."""
        with self._opened() as file:
            self._catch_up(file)
        with suppress(FileNotFoundError):
            self.torn.unlink()  # it comes again, if it is still to come
        if not any(_belongs(raw, lines.read(raw), session) for raw in lines_of(self.path)):
            return 0
        with _created(self._draft, os.O_TRUNC) as draft:
            removed = self._copy_without(session, draft)
            draft.flush()
            os.fsync(draft.fileno())
        os.replace(self._draft, self.path)
        self._sync_folder()
        return removed

    def remove(self) -> int:
        """Remove the file with all that lies beside it, and say how many messages that was."""
        messages = sum(isinstance(lines.read(raw), MessageLine) for raw in lines_of(self.path))
        for path in (self.path, self.torn, self._draft):
            with suppress(FileNotFoundError):
                path.unlink()
        self._sync_folder()
        return messages

    @property
    def _draft(self) -> Path:
        return self.path.with_suffix(".new")

    def _opened(self) -> BinaryIO:
        return _created(self.path, os.O_APPEND)

    def _catch_up(self, file: BinaryIO) -> None:
        """Note the lines that were added since, by others or before a crash."""
        first = file.readline()
        self._check_version(first)
        if first != self._first:
            self._first, self._end, self._seen = first, 0, set()
            self._sync_folder()
        file.seek(self._end)
        start, damaged = self._end, 0
        for raw in file:
            if not raw.endswith(b"\n"):
                self._set_aside(file, raw)
                break
            self._end += len(raw)
            damaged += not self._note(raw)
        if self._end > start:
            os.fsync(file.fileno())  # whoever wrote them may have died before this
        if damaged:
            _log.warning("%s: %d damaged lines are passed over", self.path, damaged)

    def _note(self, raw: bytes) -> bool:
        line = lines.read(raw)
        if line is not None:
            self._seen.add(lines.identity(line))
        return line is not None

    def _check_version(self, first: bytes) -> None:
        line = lines.read(first)
        if isinstance(line, UserLine) and line.version > lines.VERSION:
            raise NewerFormat(f"{self.path} was written by a newer Turnstate; update this one to change it")

    def _set_aside(self, file: BinaryIO, raw: bytes) -> None:
        _log.warning("%s ends in a torn line, which is set aside in %s", self.path, self.torn.name)
        with _created(self.torn, os.O_APPEND) as torn:
            torn.write(raw + b"\n")
            torn.flush()
            os.fsync(torn.fileno())
        os.ftruncate(file.fileno(), self._end)

    def _write(self, file: BinaryIO, data: bytes) -> None:
        header = b"" if self._end else lines.written(self._header())
        rest = memoryview(header + data)
        size = len(rest)
        try:
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), self._end)
            raise
        self._first = header or self._first
        self._end += size

    def _header(self) -> UserLine:
        return UserLine(tenant=self._tenant, user=self._user, file=secrets.token_hex(8))

    def _copy_without(self, session: str, draft: BinaryIO) -> int:
        removed = 0
        draft.write(lines.written(self._header()))
        for raw in lines_of(self.path):
            line = lines.read(raw)
            if _belongs(raw, line, session):
                removed += isinstance(line, MessageLine)
            elif not isinstance(line, UserLine):
                draft.write(raw)
        return removed

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            durable.sync_folder(folder)
        finally:
            os.close(folder)


def lines_of(path: Path) -> Iterator[bytes]:
    """Give the whole lines of a file, none where there is no file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for raw in file:
            if raw.endswith(b"\n"):
                yield raw


def _created(path: Path, flag: int) -> BinaryIO:
    """Open a file for reading and writing, made where it is missing, private to its owner; no links."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flag
    return os.fdopen(os.open(path, flags, durable.FILE_MODE), "r+b")


def _belongs(raw: bytes, line: Line | None, session: str) -> bool:
    """Tell whether a line came from a session; a damaged one that names it had better go, too."""
    if line is None:
        return session.encode() in raw
    return not isinstance(line, UserLine) and line.session == session
