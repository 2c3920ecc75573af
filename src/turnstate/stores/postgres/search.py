"""Search in PostgreSQL: a table of words that follows the log, and a scan of messages it does not have yet.

    entry      1 2 3 4 5 6 7 8 9      an append writes here, and is acknowledged
    word       1 2 3   5 6            one row for every indexed message
    indexed    3                      nothing is missing up to here, and nothing new can appear

A message is missing if it has no row in `word`. A key is taken before its transaction commits, so 4 may
appear after 5 was indexed. Only messages after `indexed` are checked; it advances once all transactions that
may have taken a lower key have ended (`feed` explains how that is known). Words are written in a transaction
that keeps the session from being deleted and checks again that the entry exists, so no words of an erased
entry remain.

An `Indexer` catches up when nothing is written for a moment, and before every search. If too much is missing,
or the words cannot be written, the search reads the missing messages itself, so the hits are the same. A
message that is damaged when it is indexed is a damaged hit of every search until it is repaired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from ...errors import StoreUnavailable, TurnstateError
from ...search_terms import entry_words
from ..values import Hit
from .connections import Connections
from .feed import last_key, writers
from .rows import DAMAGED, entry_row, query_of, vector

STEP = 256
"""Messages that are indexed in one transaction."""

STEP_BYTES = 1_000_000
"""Bytes of messages that are read at a time."""

MOST_BEHIND = 10_000
"""The most missing messages that a search indexes first; if there are more, it reads them instead."""

IDLE = 0.05
"""Seconds without a write after which indexing continues."""

BUSY = 1.0
"""Seconds after which a step is made even if writes continue."""

INLINE = 16
"""Messages that are split into words on the event loop; more are split in a thread."""

CLOSING = 1.0
"""Seconds that closing waits for a step."""

END = 2**63 - 1
"""Greater than every mark of a search."""


class Indexer:
    """Writes the words of messages into the index, in the background after appends."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._turn = asyncio.Lock()  # so that concurrent searches do not index the same messages
        self._wanted = asyncio.Event()
        self._written = 0.0
        self._unsettled = 0  # messages indexed since `indexed` last moved
        self._waiting: tuple[int, set[str]] | None = None  # a key, and transactions that may have a lower one
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def written(self) -> None:
        """Record a write, and continue indexing as soon as writes pause."""
        self._written = time.monotonic()
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Wait for the current step for a moment, and stop."""
        self._closing = True
        self._wanted.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=CLOSING if self._turn.locked() else 0)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task})

    async def catch_up(self) -> bool:
        """Index missing messages; return False if there are too many, or if words cannot be written."""
        async with self._turn:
            messages = await self._missing(0)
            until = END
            if len(messages) == STEP:
                ((count, until),) = await self._connections.read("count_unindexed", limit=MOST_BEHIND + 1)
                if count > MOST_BEHIND:
                    return False
            try:
                while messages:
                    await self._index(messages)
                    after = messages[-1]["key"]
                    messages = await self._missing(after) if after < until else []
                if self._unsettled >= STEP:
                    await self._settle()
            except StoreUnavailable:  # a full disk, or a user without write permission
                return False
        return True

    async def _follow(self) -> None:
        """Continue indexing after every write until the store is closed."""
        while not self._closing:
            await self._wanted.wait()
            await self._quiet()
            self._wanted.clear()
            after: int | None = 0
            with suppress(TurnstateError):  # the next search or append gets the same error, and reports it
                while after is not None:
                    after = await self._step(after)
                    await self._quiet()

    async def _quiet(self) -> None:
        """Wait until nothing has been written for `IDLE` seconds, but at most `BUSY` seconds."""
        begun = now = time.monotonic()
        while not self._closing and now - self._written < IDLE and now - begun < BUSY:
            await asyncio.sleep(IDLE)
            now = time.monotonic()

    async def _step(self, after: int) -> int | None:
        """Index some messages after a key; return the last key, or None if there are no messages."""
        async with self._turn:
            if self._closing:
                return None
            messages = await self._missing(after)
            if messages:
                await self._index(messages)
            if self._unsettled:
                await self._settle()
        return messages[-1]["key"] if messages else None

    async def _missing(self, after: int) -> Sequence[Any]:
        return await self._connections.read("unindexed", after=after, limit=STEP, size=STEP_BYTES)

    async def _index(self, messages: Sequence[Any]) -> None:
        words = await _cut(messages, _index_text)
        keys = [columns["key"] for columns in messages]
        await self._connections.write("add_words", entries=keys, words=words)
        self._unsettled += len(messages)

    async def _settle(self) -> None:
        """Advance `indexed` if all transactions that may have taken a lower key have ended."""
        if self._waiting is None:
            last = await last_key(self._connections)  # read before the transactions are listed
            self._waiting = last, await writers(self._connections)
        last, waiting = self._waiting
        if waiting:
            waiting &= await writers(self._connections)
        if not waiting:
            self._waiting, self._unsettled = None, 0
            await self._connections.write("all_indexed", through=last)


async def search(
    connections: Connections,
    indexer: Indexer,
    tenant: str,
    words: Sequence[str],
    *,
    user: str | None,
    session: str | None,
    before: int | None,
    limit: int,
) -> list[Hit]:
    """Return the entries that contain all the words, newest first, starting after a mark."""
    wanted = query_of(words, tenant=tenant, user=user)
    if wanted is None or limit < 1:
        return []
    which: dict[str, Any] = {"tenant": tenant, "user": user, "session": session}
    which["before"] = END if before is None else before
    hits = dict[int, Hit]()
    if not await indexer.catch_up():
        # Missing messages first, then the index: a message indexed in between is found twice, not missed.
        async for hit in _read(connections, frozenset(words), which):
            hits[hit.mark] = hit
            if len(hits) == limit:
                break
    for mark, id, *columns in await connections.read("search", words=wanted, limit=limit, **which):
        hits[mark] = Hit(session=id, row=entry_row(columns), mark=mark)
    return sorted(hits.values(), key=lambda hit: -hit.mark)[:limit]


async def _read(connections: Connections, words: frozenset[str], which: dict[str, Any]) -> AsyncIterator[Hit]:
    """Yield hits among messages that are not indexed, newest first."""
    which = dict(which)
    while page := await connections.read("search_unindexed", **which, limit=STEP, size=STEP_BYTES):
        found = await _cut(page, lambda columns: _has(columns[2:], words))
        for (mark, id, *columns), is_hit in zip(page, found, strict=True):
            if is_hit:
                yield Hit(session=id, row=entry_row(columns), mark=mark)
        which["before"] = page[-1]["key"]


async def _cut(messages: Sequence[Any], cut: Any) -> list[Any]:
    """Apply a function to each message, in a thread if there are many."""
    many = len(messages) > INLINE or sum(len(columns["body"]) for columns in messages) > STEP_BYTES // 10
    if not many:
        return [cut(columns) for columns in messages]
    return await asyncio.to_thread(lambda: [cut(columns) for columns in messages])


def _index_text(columns: Any) -> str | None:
    row = entry_row(columns[1:])
    return vector([DAMAGED] if row.damaged else entry_words(row.kind, row.body))


def _has(columns: Sequence[Any], words: frozenset[str]) -> bool:
    row = entry_row(columns)
    return row.damaged or words.issubset(entry_words(row.kind, row.body))
