"""Search in PostgreSQL: a table of words that follows the log, and what it does not have yet.

    entry      1 2 3 4 5 6 7 8 9      an append writes here, and is acknowledged
    word       1 2 3   5 6            a row for every message that is indexed
    indexed    3                      nothing is missing up to here, and nothing can appear

A message is missing if it has no row in `word`. A key is taken before its transaction commits, so 4 may
appear after 5 was indexed: only those after `indexed` are looked at, which moves on once all transactions
have ended that may have taken a key below (`feed` says how that is known). Words are written in a transaction
that keeps the session from being deleted and looks again whether the entry is there: no word stays of what
was erased.

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

__all__ = ["Indexer", "search"]

STEP = 256
"""Messages that are indexed in one transaction."""

STEP_BYTES = 1_000_000
"""Bytes of messages that are read at once."""

MOST_BEHIND = 10_000
"""Messages that a search waits for; if more are missing in the index, it reads them instead."""

IDLE = 0.05
"""Seconds without a write after which the index is continued."""

BUSY = 1.0
"""Seconds after which a step is made although writes go on."""

INLINE = 16
"""Messages that are cut into words on the event loop; more are cut in a thread."""

CLOSING = 1.0
"""Seconds for which closing waits for a step."""

END = 2**63 - 1
"""After every mark of a search."""


class Indexer:
    """Writes the words of messages into the index, behind the appends of a store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._turn = asyncio.Lock()  # what one search indexes need not be indexed by another
        self._wanted = asyncio.Event()
        self._written = 0.0
        self._unsettled = 0  # messages that were indexed since `indexed` was moved
        self._waiting: tuple[int, set[str]] | None = None  # a key, and transactions that may be below it
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def written(self) -> None:
        """Continue the index as soon as nothing else is written."""
        self._written = time.monotonic()
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Finish a step that was begun."""
        self._closing = True
        self._wanted.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=CLOSING if self._turn.locked() else 0)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task})

    async def catch_up(self) -> bool:
        """Index what is missing; return False if that is too much, or if it cannot be written."""
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
            except StoreUnavailable:  # a full disk, a user who may not write
                return False
        return True

    async def _follow(self) -> None:
        """Continue the index whenever it is wanted, until the store is closed."""
        while not self._closing:
            await self._wanted.wait()
            await self._quiet()
            self._wanted.clear()
            after: int | None = 0
            with suppress(TurnstateError):  # the next search or append meets the same, and reports it
                while after is not None:
                    after = await self._step(after)
                    await self._quiet()

    async def _quiet(self) -> None:
        """Wait until nothing was written for a moment, or for as long as a busy store is left alone."""
        begun = now = time.monotonic()
        while not self._closing and now - self._written < IDLE and now - begun < BUSY:
            await asyncio.sleep(IDLE)
            now = time.monotonic()

    async def _step(self, after: int) -> int | None:
        """Index some messages after a key; return the last of them, or None if there are none."""
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
        """Move `indexed` on if all transactions have ended that may have taken a key below."""
        if self._waiting is None:
            last = await last_key(self._connections)  # before the transactions are listed
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
        # First what is missing, then the index: what is indexed in between is found twice, not missed.
        async for hit in _read(connections, frozenset(words), which):
            hits[hit.mark] = hit
            if len(hits) == limit:
                break
    for mark, id, *columns in await connections.read("search", words=wanted, limit=limit, **which):
        hits[mark] = Hit(session=id, row=entry_row(columns), mark=mark)
    return sorted(hits.values(), key=lambda hit: -hit.mark)[:limit]


async def _read(connections: Connections, words: frozenset[str], which: dict[str, Any]) -> AsyncIterator[Hit]:
    """Yield hits that are not indexed, the newest first."""
    which = dict(which)
    while page := await connections.read("search_unindexed", **which, limit=STEP, size=STEP_BYTES):
        found = await _cut(page, lambda columns: _has(columns[2:], words))
        for (mark, id, *columns), is_hit in zip(page, found, strict=True):
            if is_hit:
                yield Hit(session=id, row=entry_row(columns), mark=mark)
        which["before"] = page[-1]["key"]


async def _cut(messages: Sequence[Any], cut: Any) -> list[Any]:
    """Return what a function returns for each message; it is called in a thread if there are many."""
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
