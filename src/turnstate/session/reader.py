"""Reading a session: its description, what its log contains, and what is written to it from now on.

Nothing here writes to the conversation. `Session` is a reader that also writes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from ..errors import InputError, InvalidMessage, NotFound
from ..log.entries import (
    LogEntry,
    last_messages,
    log_entries,
    path_after,
    path_of,
    read_entries,
    read_messages,
)
from ..message import Message, not_a_message
from ..stores.port import Reads
from ..stores.values import SessionRow, Span
from ..value import check_kind, check_number, check_whole, refuse
from .info import Branch, SearchResult, SessionInfo, branch_of, info_of, search
from .writer import SessionWriter

T = TypeVar("T")

PAGE = 100
"""How many entries `follow` reads at a time."""

FEW = 64
"""How many messages are a small read, unless they are long."""


class SessionReader:
    """The part of a session that reads."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer

    @property
    def info(self) -> SessionInfo:
        """The session as it was last seen: title, tags, times, version, head."""
        return info_of(self._row)

    @property
    def cache_key(self) -> str:
        """A name for OpenAI's ``prompt_cache_key``: the same for every request of this session.

        It is a hash, since tenants and ids may say who somebody is.
        """
        at = self._writer.at
        return hashlib.blake2b(f"{at.tenant}\0{at.session}".encode(), digest_size=16).hexdigest()

    @property
    def id(self) -> str:
        """The id under which any worker can open it."""
        return self._row.id

    @property
    def version(self) -> int:
        """The number of changes to the path of messages, as last seen."""
        return self._row.version

    @property
    def total(self) -> int:
        """The tokens of all messages on the path, as last seen, before anything is cut or added."""
        return self._row.total

    async def cost(self, message: Message) -> int:
        """Return the tokens that a message would add to the total."""
        if not isinstance(message, Message):
            raise InvalidMessage(not_a_message("cost", message))
        (record,) = await self._writer.records([message])
        return record.tokens

    async def messages(
        self,
        *,
        branch: int | None = None,
        after: str | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Message]:
        """Return the messages on the path to the head or the end of a branch, including those a cut hides.

        `after` is the id of an entry on that path, and at most `limit` messages after it are returned;
        `last` returns the last ones instead. An answer that the core gave to a call is returned as the
        tool message that a window shows for it.
        """
        if last is not None and limit is not None:
            raise InputError("pass limit for the first messages, or last for the last ones, not both")
        for name, count in (("limit", limit), ("last", last)):
            if count is not None:
                check_whole(name, count)

        async def read(log: Reads, path: Sequence[Span]) -> list[Message]:
            if last is not None:
                return await last_messages(log, self._writer.at, path, last)
            return await read_messages(log, self._writer.at, path, limit=limit)

        wanted = limit if last is None else last
        return await self._read(branch, after, read, small=wanted is not None and wanted <= FEW)

    async def entries(
        self,
        *,
        kinds: Sequence[str] | None = None,
        branch: int | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[LogEntry]:
        """Return the entries on the path to the head or to the end of a branch, with their places and times.

        `kinds` selects the kinds of entries; `after` is the id of an entry on that path, and at most `limit`
        entries after it are returned.
        """
        if kinds is not None and not (isinstance(kinds, Collection) and _are_names(kinds)):
            refuse("kinds", kinds, "a sequence of kinds, such as ['message']")
        if limit is not None:
            check_whole("limit", limit)

        async def read(log: Reads, path: Sequence[Span]) -> list[LogEntry]:
            return await read_entries(log, self._writer.at, path, kinds=kinds, limit=limit)

        return await self._read(branch, after, read)

    async def entry(self, id: str) -> LogEntry:
        """Return the entry with an id, on any branch; raise `NotFound` if there is none."""
        check_kind("id", id, str)
        for entry in await log_entries(self._writer.at, await self._writer.log.find(self._writer.at, [id])):
            return entry
        raise NotFound(f"session {self.id} has no entry {id:.80}")

    async def search(self, text: str, *, limit: int = PAGE) -> AsyncIterator[SearchResult]:
        """Find messages of this session that contain all the words, on all branches, the newest first."""
        tenant = self._writer.at.tenant
        async for found in search(self._writer.log, tenant, text, session=self.id, limit=limit):
            yield found

    async def branches(self) -> list[Branch]:
        """Return all branches in order of creation."""
        await self._writer.refresh()
        return [branch_of(row) for row in await self._writer.log.branches(self._writer.at)]

    async def follow(self, *, after: str | None = None, every: float = 0.5) -> AsyncIterator[LogEntry]:
        """Iterate over the entries of all branches and epochs as they are written, by any process.

        It begins after the entry whose id is `after`, or with the first, and yields each entry once and in
        order. It polls the store every `every` seconds and does not end by itself.
        """
        check_kind("after", after, str, optional=True)
        check_number("every", every, least=0, most=86_400)
        store, at, seen = self._writer.store, self._writer.at, None
        while True:
            row = await store.get(at)
            place = (row.epoch, row.version, row.head)  # changes with every write
            rows = await store.since(at, after, limit=PAGE) if place != seen else []
            for entry in await log_entries(at, rows):
                yield entry
                after = entry.id
            if len(rows) < PAGE:
                seen = place
                await asyncio.sleep(every)

    @property
    def _row(self) -> SessionRow:
        return self._writer.row

    async def _read(
        self,
        branch: int | None,
        after: str | None,
        read: Callable[[Reads, Sequence[Span]], Awaitable[T]],
        *,
        small: bool = False,
    ) -> T:
        """Read the path to the head or to the end of a branch, or the part of it after an entry."""
        if branch is not None:
            check_whole("branch", branch, least=1)
        check_kind("after", after, str, optional=True)

        async def job(row: SessionRow, log: Reads) -> T:
            path = await path_of(log, row.address, row.head, branch)
            return await read(log, await path_after(log, row.address, path, after))

        return await self._writer.read(job, small=small)


def _are_names(given: Collection[object]) -> bool:
    return not isinstance(given, str) and all(isinstance(one, str) for one in given)
