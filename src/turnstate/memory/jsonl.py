"""The plainest memory engine: a folder of text files, one a user, one JSON object a line.

It keeps what it is given and finds it again by its words; it infers nothing. Every line is on the
disk before a delivery is acknowledged, and stands there once however often it is delivered. Any
number of processes may use one folder. What it holds can be read with any tool that reads lines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from .. import durable
from ..errors import StoreUnavailable
from ..stores.values import Address
from ..words import query as asked
from ..words import words
from . import lines
from .lines import Line, MessageLine, SessionLine, SummaryLine
from .notebook import lines_of
from .port import Evicted, Recollection, SessionRecord, User
from .shelf import Shelf

__all__ = ["JsonlEngine"]

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
            durable.make_folder(self._folder)
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
            found = _recollection(lines.read(raw), wanted)
            if found:
                newest.appendleft(found)
        return list(newest)

    def _profile(self, user: User) -> str:
        path = self._shelf(user.tenant).path(user.id)
        read = (lines.read(raw) for raw in lines_of(path) if raw.startswith(SESSION_START))
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
