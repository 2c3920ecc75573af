"""A memory file and its lines: the owner, messages, summaries of cuts, and sessions that ended.

Each line is one JSON object with a ``kind``. Each line has an identity, and a line whose identity is already
in the file is not written again, so every delivery can be repeated. A line is durable before it counts.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from .. import codec, files, folder_gate
from ..errors import NewerFormat, TurnstateError
from ..message import Message

VERSION = 1


class UserLine(Struct, frozen=True, kw_only=True, tag="user", tag_field="kind"):
    """The first line: the owner of the file. ``file`` changes whenever the file is rewritten."""

    version: int = VERSION
    tenant: str
    user: str | None
    file: str


class MessageLine(Struct, frozen=True, kw_only=True, tag="message", tag_field="kind"):
    """A message, as in the log."""

    session: str
    epoch: int
    id: str
    message: Raw

    @classmethod
    def of(cls, message: Message, *, session: str, epoch: int) -> MessageLine:
        """Return the line of a message."""
        return cls(session=session, epoch=epoch, id=message.id, message=Raw(codec.encode(message)))

    @property
    def value(self) -> Message | None:
        """The message, or None if it is damaged."""
        try:
            return codec.decode(bytes(self.message))
        except TurnstateError:
            return None


class SummaryLine(Struct, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """The summary of messages that a cut removed from the window."""

    session: str
    epoch: int
    key: str
    summary: str


class SessionLine(Struct, frozen=True, kw_only=True, tag="session", tag_field="kind"):
    """A session that has ended; all its messages are before this line."""

    session: str
    epoch: int
    key: str
    reason: str
    started: int
    ended: int
    summary: str


MemoryLine = UserLine | MessageLine | SummaryLine | SessionLine

_decoder: msgspec.json.Decoder[MemoryLine] = msgspec.json.Decoder(MemoryLine)
_encoder = msgspec.json.Encoder()


def read(line: bytes) -> MemoryLine | None:
    """Parse a line; return None if it is damaged."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def encode_line(line: MemoryLine) -> bytes:
    """Return a line as bytes, with its newline."""
    return _encoder.encode(line) + b"\n"


def identity(line: MemoryLine) -> tuple[str, ...]:
    """Return the identity of a line: the session and id of a message, the delivery key of the others."""
    match line:
        case UserLine():
            return ("user",)
        case MessageLine():
            return ("message", line.session, line.id)
        case _:
            return ("key", line.key)


_log = logging.getLogger(__name__)


class MemoryFile:
    """One user's file, and the identities of the lines that it is known to contain."""

    def __init__(self, path: Path, tenant: str, user: str | None) -> None:
        self.path = path
        self._tenant, self._user = tenant, user
        self._first: bytes | None = None  # not read yet
        self._end = 0
        self._seen = set[tuple[str, ...]]()

    @property
    def torn(self) -> Path:
        """The file for incomplete lines."""
        return self.path.with_suffix(".torn")

    def knows(self, key: str) -> bool:
        """Return True if the delivery with this key has been written."""
        with self._opened() as file:
            self._catch_up(file)
        return ("key", key) in self._seen

    def add(self, more: Iterable[MemoryLine]) -> None:
        """Write the lines that the file does not contain yet."""
        with self._opened() as file:
            self._catch_up(file)
            new = {identity(line): line for line in more}
            new = {name: line for name, line in new.items() if name not in self._seen}
            if new:
                self._write(file, b"".join(map(encode_line, new.values())))
                self._seen.update(new)

    def remove_session(self, session: str) -> int:
        """Rewrite the file without a session; return the number of messages removed."""
        with self._opened() as file:
            self._catch_up(file)
        with suppress(FileNotFoundError):
            self.torn.unlink()  # an incomplete delivery will be repeated
        if not any(_belongs(raw, read(raw), session) for raw in lines_of(self.path)):
            return 0
        with _created(self._draft, os.O_TRUNC) as draft:
            removed = self._copy_without(session, draft)
            draft.flush()
            os.fsync(draft.fileno())
        os.replace(self._draft, self.path)
        files.sync_folder(self.path.parent)
        return removed

    def remove(self) -> int:
        """Remove the file and its side files; return the number of messages."""
        messages = sum(isinstance(read(raw), MessageLine) for raw in lines_of(self.path))
        for path in (self.path, self.torn, self._draft):
            with suppress(FileNotFoundError):
                path.unlink()
        files.sync_folder(self.path.parent)
        return messages

    @property
    def _draft(self) -> Path:
        return self.path.with_suffix(".new")

    def _opened(self) -> AbstractContextManager[BinaryIO]:
        return opened(self.path)

    def _catch_up(self, file: BinaryIO) -> None:
        """Read the lines added since the last read, by other processes or before a crash."""
        first = file.readline()
        self._check_version(first)
        if first != self._first:
            self._first, self._end, self._seen = first, 0, set()
            files.sync_folder(self.path.parent)
        file.seek(self._end)
        start, damaged = self._end, 0
        for raw in file:
            if not raw.endswith(b"\n"):
                self._move_torn_line(file, raw)
                break
            self._end += len(raw)
            damaged += not self._note(raw)
        if self._end > start:
            os.fsync(file.fileno())  # their writer may have died before it synced them
        if damaged:
            _log.warning("%s: %d damaged lines were skipped", self.path, damaged)

    def _note(self, raw: bytes) -> bool:
        line = read(raw)
        if line is not None:
            self._seen.add(identity(line))
        return line is not None

    def _check_version(self, first: bytes) -> None:
        line = read(first)
        if isinstance(line, UserLine) and line.version > VERSION:
            raise NewerFormat(f"{self.path} was written by a newer Turnstate; update this one to change it")

    def _move_torn_line(self, file: BinaryIO, raw: bytes) -> None:
        _log.warning("%s ends in an incomplete line, which was moved to %s", self.path, self.torn.name)
        with _created(self.torn, os.O_APPEND) as torn:
            torn.write(raw + b"\n")
            torn.flush()
            os.fsync(torn.fileno())
        os.ftruncate(file.fileno(), self._end)

    def _write(self, file: BinaryIO, data: bytes) -> None:
        header = b"" if self._end else encode_line(self._header())
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
        draft.write(encode_line(self._header()))
        for raw in lines_of(self.path):
            line = read(raw)
            if _belongs(raw, line, session):
                removed += isinstance(line, MessageLine)
            elif not isinstance(line, UserLine):
                draft.write(raw)
        return removed


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file; none if it does not exist."""
    with suppress(FileNotFoundError), folder_gate.stream(path) as file:
        for raw in file:
            if raw.endswith(b"\n"):
                yield raw


def opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open a private file for reading and appending."""
    return _created(path, os.O_APPEND)


def _created(path: Path, flag: int) -> AbstractContextManager[BinaryIO]:
    """Open a private file for reading and writing, and create it if it is missing; refuse a link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flag
    return folder_gate.stream(path, flags, mode=files.FILE_MODE)


def _belongs(raw: bytes, line: MemoryLine | None, session: str) -> bool:
    """Return True if a line is from a session, or is damaged and names it."""
    if line is None:
        return session.encode() in raw
    return not isinstance(line, UserLine) and line.session == session
