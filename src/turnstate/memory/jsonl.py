"""The plainest memory engine: a folder of text files, one a user, one JSON object a line.

It keeps what it is given and finds it again by its words; it infers nothing. Every line is on the
disk before a delivery is acknowledged, and stands there once however often it is delivered. Any
number of processes may use one folder. What it holds can be read with any tool that reads lines.
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
from ..search_terms import query as asked
from ..search_terms import words
from ..stores.values import Address
from . import jsonl_file
from .jsonl_file import Line, MessageLine, Notebook, SessionLine, SummaryLine, UserLine, lines_of
from .port import Evicted, Recollection, SessionRecord, User

__all__ = ["JsonlEngine", "Shelf"]

# A shelf: the notebooks of one tenant in a folder of their own, and the lock that writers hold.


LOCK = "lock"
LOCK_SECONDS = 10.0
"""Seconds to wait for another writer, who holds the lock for one batch of messages."""

MOST_NOTEBOOKS = 64
"""Notebooks whose lines are remembered; the others are read again when they are written to."""

NO_USER = "no-user"  # no user's file is called so: theirs end in a digest
_READABLE = 40


class Shelf:
    """The notebooks of one tenant."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self._folder = folder / _named(tenant)
        self._tenant = tenant
        self._open: dict[Path, Notebook] = {}

    def path(self, user: str | None) -> Path:
        """Name the file of a user, or of those who have no name."""
        return self._folder / f"{NO_USER if user is None else _named(user)}.jsonl"

    def notebook(self, user: str | None) -> Notebook:
        """Return the notebook of a user."""
        path = self.path(user)
        notebook = self._open.pop(path, None) or Notebook(path, self._tenant, user)
        self._open[path] = notebook
        if len(self._open) > MOST_NOTEBOOKS:
            del self._open[next(iter(self._open))]
        return notebook

    def notebooks(self) -> Iterator[Notebook]:
        """Return all notebooks that there are."""
        for path in sorted(self._folder.glob("*.jsonl")):
            first = next(lines_of(path), b"")
            line = jsonl_file.read(first)
            yield Notebook(path, self._tenant, line.user if isinstance(line, UserLine) else None)

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
            os.close(lock)


def _named(name: str) -> str:
    readable = re.sub(r"[^a-z0-9_]+", "-", name[:_READABLE].lower()).strip("-")
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{readable}-{digest}" if readable else digest


BATCH = 500
BATCH_BYTES = 4_000_000
"""Messages, and bytes, after which what has come is written and forced to the disk."""

SESSION_START = b'{"kind":"session"'
"""How the lines begin that a profile is made of; the others need not be read."""

LONGEST_SUMMARY = 600
"""Characters of a summary in a profile."""


class JsonlEngine:
    """Memory in a folder of JSONL files."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self.files = (self._folder,)
        self._shelves: dict[str, Shelf] = {}
        try:
            files.make_folder(self._folder)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._folder}: {error.strerror or error}; name another folder"
            ) from None

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Write down what left the window, and the text that stands for it there."""
        last = SummaryLine(session=evicted.session, epoch=evicted.epoch, key=evicted.key, summary=summary)
        await self._take(evicted, last)

    async def ingest(self, record: SessionRecord) -> None:
        """Write down a session that has ended; its last line says that it is whole."""
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
        """Say how many sessions there were, when, and what the newest with a summary was about."""
        return await asyncio.to_thread(self._profile, user)

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Find the newest messages that hold all the words."""
        return await asyncio.to_thread(self._search, user, frozenset(asked(query)), k)

    async def forget(self, whose: User | Address) -> int:
        """Remove a user's file, or the lines of a session from every file of its tenant."""
        return await asyncio.to_thread(self._forget, whose)

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    async def _take(self, handed: Evicted | SessionRecord, last: SummaryLine | SessionLine) -> None:
        if await asyncio.to_thread(self._knows, handed.tenant, handed.user, last.key):
            return
        async for batch in _batches(handed, last):
            await asyncio.to_thread(self._add, handed.tenant, handed.user, batch)

    def _shelf(self, tenant: str) -> Shelf:
        return self._shelves.setdefault(tenant, Shelf(self._folder, tenant))

    def _knows(self, tenant: str, user: str | None, key: str) -> bool:
        shelf = self._shelf(tenant)
        with shelf.locked():
            return shelf.notebook(user).knows(key)

    def _add(self, tenant: str, user: str | None, batch: list[Line]) -> None:
        shelf = self._shelf(tenant)
        with shelf.locked():
            shelf.notebook(user).add(batch)

    def _forget(self, whose: User | Address) -> int:
        shelf = self._shelf(whose.tenant)
        with shelf.locked():
            if isinstance(whose, User):
                return shelf.notebook(whose.id).remove()
            return sum(notebook.remove_session(whose.session) for notebook in shelf.notebooks())

    def _search(self, user: User, wanted: frozenset[str], k: int) -> list[Recollection]:
        newest: deque[Recollection] = deque(maxlen=max(0, k))
        for raw in lines_of(self._shelf(user.tenant).path(user.id)):
            found = _recollection(jsonl_file.read(raw), wanted)
            if found:
                newest.appendleft(found)
        return list(newest)

    def _profile(self, user: User) -> str:
        path = self._shelf(user.tenant).path(user.id)
        read = (jsonl_file.read(raw) for raw in lines_of(path) if raw.startswith(SESSION_START))
        ended = [line for line in read if isinstance(line, SessionLine)]
        if not ended:
            return ""
        since, until = min(line.started for line in ended), max(line.ended for line in ended)
        times = "once" if len(ended) == 1 else f"{len(ended)} times"
        summary = next((line.summary for line in reversed(ended) if line.summary), "")
        said = f" Lately: {summary[:LONGEST_SUMMARY]}" if summary else ""
        return f"Spoke {times} between {_day(since)} and {_day(until)}.{said}"


async def _batches(handed: Evicted | SessionRecord, last: Line) -> AsyncIterator[list[Line]]:
    batch, size = list[Line](), 0
    async for message in handed.messages:
        line = MessageLine.of(message, session=handed.session, epoch=handed.epoch)
        batch.append(line)
        size += len(bytes(line.message))
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield [*batch, last]


def _recollection(line: Line | None, wanted: frozenset[str]) -> Recollection | None:
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
