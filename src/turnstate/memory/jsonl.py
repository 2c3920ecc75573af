"""The simplest memory engine: a folder of text files, one per user, one JSON object per line.

It keeps messages as they are and finds them by their words; it infers nothing. Every line is durable before
a delivery is acknowledged, and is written once, no matter how often it is delivered. Any number of processes
may use one folder, and any tool that reads lines can read it. Forgetting leaves a mark, a hash and a time in
the file ``forgotten``, so that later deliveries are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from .. import files
from ..errors import StoreUnavailable
from ..ids import Clock, wall_clock
from ..process import Owner
from ..search_terms import query as asked
from ..search_terms import words
from ..stores.values import Address
from . import jsonl_file
from .jsonl_file import MemoryFile, MemoryLine, MessageLine, SessionLine, SummaryLine, UserLine, lines_of
from .port import Evicted, Recollection, SessionRecord, User, mark_of

LOCK = "lock"
FORGOTTEN = "forgotten"
LOCK_SECONDS = 10.0
"""Seconds to wait for another writer, which holds the lock for one batch of messages."""

MAX_OPEN_FILES = 64
"""The most files whose lines are remembered; others are read again before a write."""

NO_USER = "no-user"  # no user's file has this name: theirs end in a digest
_READABLE = 40


class TenantFolder:
    """The memory files of one tenant."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self._folder = folder / _named(tenant)
        self._tenant = tenant
        self._open: dict[Path, MemoryFile] = {}

    def path(self, user: str | None) -> Path:
        """Return the path of a user's file, or of the file for sessions without a user."""
        return self._folder / f"{NO_USER if user is None else _named(user)}.jsonl"

    def file(self, user: str | None) -> MemoryFile:
        """Return the memory file of a user."""
        path = self.path(user)
        file = self._open.pop(path, None) or MemoryFile(path, self._tenant, user)
        self._open[path] = file
        if len(self._open) > MAX_OPEN_FILES:
            del self._open[next(iter(self._open))]
        return file

    def memory_files(self) -> Iterator[MemoryFile]:
        """Yield all memory files of the tenant."""
        for path in sorted(self._folder.glob("*.jsonl")):
            first = next(lines_of(path), b"")
            line = jsonl_file.read(first)
            yield MemoryFile(path, self._tenant, line.user if isinstance(line, UserLine) else None)

    def forgotten(self, whose: User | Address) -> int:
        """Return when a user or a session was forgotten, in milliseconds since 1970; -1 if never."""
        name = mark_of(whose).hex().encode()
        marks = (raw.split() for raw in lines_of(self._folder / FORGOTTEN))
        return max((int(mark[1]) for mark in marks if len(mark) == 2 and mark[0] == name), default=-1)

    def mark_forgotten(self, whose: User | Address, now: int) -> None:
        """Record that a user or a session was forgotten."""
        with jsonl_file.opened(self._folder / FORGOTTEN) as file:
            file.write(f"{mark_of(whose).hex()} {now}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        files.sync_folder(self._folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this folder against other threads and processes."""
        files.make_folder(self._folder)
        try:
            lock = files.lock(self._folder / LOCK, seconds=LOCK_SECONDS)
        except files.LockTimeout:
            raise StoreUnavailable(
                f"{self._folder}: another process has held the lock for {LOCK_SECONDS:g} s; try again"
            ) from None
        try:
            yield
        finally:
            files.unlock(lock)


def _named(name: str) -> str:
    readable = re.sub(r"[^a-z0-9_]+", "-", name[:_READABLE].lower()).strip("-")
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{readable}-{digest}" if readable else digest


BATCH = 500
BATCH_BYTES = 4_000_000
"""The messages or bytes after which a batch is written and synced."""

SESSION_START = b'{"kind":"session"'
"""The prefix of the lines that a profile needs; other lines are not parsed."""

MAX_SUMMARY = 600
"""The most characters of a summary in a profile."""


class JsonlEngine:
    """Memory in a folder of JSONL files."""

    def __init__(self, folder: str | Path, *, clock: Clock = wall_clock) -> None:
        self._folder, self._clock = Path(folder).expanduser().absolute(), clock
        self.files = (self._folder,)
        self._folders: dict[str, TenantFolder] = {}
        self._owner = Owner(self, f"the memory in {self._folder}")
        try:
            files.make_folder(self._folder)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._folder}: {error.strerror or error}; choose another folder"
            ) from None

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Store messages that left the window, and their summary."""
        last = SummaryLine(session=evicted.session, epoch=evicted.epoch, key=evicted.key, summary=summary)
        await self._take(evicted, last)

    async def ingest(self, record: SessionRecord) -> None:
        """Store a session that has ended; its last line marks it as complete."""
        last = SessionLine(
            session=record.session,
            epoch=record.epoch,
            key=record.key,
            reason=record.reason,
            started=record.started,
            ended=record.ended,
            summary=record.summary,
        )
        await self._take(record, last)

    async def profile(self, user: User) -> str:
        """Return how many sessions there were, when, and the newest summary."""
        return await asyncio.to_thread(self._profile, user)

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Return the newest messages that contain all the words."""
        return await asyncio.to_thread(self._search, user, frozenset(asked(query)), k)

    async def forget(self, whose: User | Address) -> int:
        """Remove a user's file, or the lines of a session from every file of its tenant."""
        return await asyncio.to_thread(self._forget, whose)

    async def close(self) -> None:
        """Do nothing: no file is kept open."""

    async def _take(self, handed: Evicted | SessionRecord, last: SummaryLine | SessionLine) -> None:
        if await asyncio.to_thread(self._knows, handed.tenant, handed.user, last.key):
            return
        async for batch in _batches(handed, last):
            await asyncio.to_thread(self._add, handed, batch)

    def _folder_of(self, tenant: str) -> TenantFolder:
        self._owner.check()
        return self._folders.setdefault(tenant, TenantFolder(self._folder, tenant))

    def _knows(self, tenant: str, user: str | None, key: str) -> bool:
        folder = self._folder_of(tenant)
        with folder.locked():
            return folder.file(user).knows(key)

    def _add(self, handed: Evicted | SessionRecord, batch: list[MemoryLine]) -> None:
        folder = self._folder_of(handed.tenant)
        with folder.locked():
            whose: list[User | Address] = [handed.address, *([handed.owner] if handed.owner else [])]
            if max(map(folder.forgotten, whose)) < handed.since:
                folder.file(handed.user).add(batch)

    def _forget(self, whose: User | Address) -> int:
        folder = self._folder_of(whose.tenant)
        with folder.locked():
            folder.mark_forgotten(whose, self._clock())
            if isinstance(whose, User):
                return folder.file(whose.id).remove()
            return sum(file.remove_session(whose.session) for file in folder.memory_files())

    def _search(self, user: User, wanted: frozenset[str], k: int) -> list[Recollection]:
        newest: deque[Recollection] = deque(maxlen=max(0, k))
        for raw in lines_of(self._folder_of(user.tenant).path(user.id)):
            found = _recollection(jsonl_file.read(raw), wanted)
            if found:
                newest.appendleft(found)
        return list(newest)

    def _profile(self, user: User) -> str:
        path = self._folder_of(user.tenant).path(user.id)
        read = (jsonl_file.read(raw) for raw in lines_of(path) if raw.startswith(SESSION_START))
        ended = [line for line in read if isinstance(line, SessionLine)]
        if not ended:
            return ""
        since, until = min(line.started for line in ended), max(line.ended for line in ended)
        first, last = _day(since), _day(until)
        times = "once" if len(ended) == 1 else f"{len(ended)} times"
        days = f", on {first}" if first == last else f" between {first} and {last}"
        summary = next((line.summary for line in reversed(ended) if line.summary), "")
        said = f" Lately: {summary[:MAX_SUMMARY]}" if summary else ""
        return f"Spoke {times}{days}.{said}"


async def _batches(handed: Evicted | SessionRecord, last: MemoryLine) -> AsyncIterator[list[MemoryLine]]:
    batch, size = list[MemoryLine](), 0
    async for message in handed.messages:
        line = MessageLine.of(message, session=handed.session, epoch=handed.epoch)
        batch.append(line)
        size += len(bytes(line.message))
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield [*batch, last]


def _recollection(line: MemoryLine | None, wanted: frozenset[str]) -> Recollection | None:
    if not isinstance(line, MessageLine):
        return None
    message = line.value
    if message is None or not wanted <= set(words(message.text)):
        return None
    return Recollection(
        text=message.text, session=line.session, message=message.id, timestamp=message.timestamp
    )


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()
