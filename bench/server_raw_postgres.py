"""Raw PostgreSQL as a contestant: the cost of the same bytes if nothing else is done with them.

`RawPostgres` inserts into a plain table without any checks: the lower limit. `BarePostgres` writes exactly
the rows that Turnstate writes, to its schema, with one statement without any checks. Its rows are prepared in
advance, or made from messages on the way, which includes encoding and counting. Words are not part of an
append. Both have as many connections as Turnstate.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import asyncpg

from turnstate import Message, SessionManager
from turnstate.stores.postgres.connections import MAX_CONNECTIONS
from turnstate.stores.postgres.rows import entry_columns
from turnstate.stores.values import Record

from .server_contest import POSTGRES_SETTINGS, session_name, settings_text
from .session_clock import timed, together
from .session_contest import Place, Portion
from .session_messages import Book
from .session_raw import recorder

_TABLE = """
CREATE TABLE message (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session text NOT NULL, body bytea NOT NULL);
CREATE INDEX message_by_session ON message (session, key)"""
_INSERT = "INSERT INTO message (session, body) VALUES ($1, $2)"
_NEWEST = "SELECT body FROM message WHERE session = $1 ORDER BY key DESC LIMIT $2"

_BARE = """
WITH head AS (
    UPDATE {schema}.session
    SET seq = seq + 1, total = total + $2, version = version + 1, active = greatest(active, $3)
    WHERE tenant = 'default' AND id = $1
    RETURNING key, branch, seq, total)
INSERT INTO {schema}.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
SELECT key, branch, seq, $4, $5, $6, $2, total,
       $7 # ((key * 1000003 + branch * 10007 + seq) & 4294967295)
FROM head"""
_COLUMNS = ("ids", "kinds", "bodies", "sums")


class RawPostgres:
    """A plain table of bodies."""

    name = "raw INSERT"

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._pool = self._runner.run(_pool(url))
        self._runner.run(self._pool.execute(_TABLE))
        self.settings = settings_text(self._runner.run(_settings(self._pool)))

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in one step."""
        rows = [(session_name(place), body) for body in book.bodies[span.start : span.stop]]
        self._runner.run(
            self._pool.copy_records_to_table("message", records=rows, columns=["session", "body"])
        )

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one, each in a transaction, until the time is up; return the time of each."""
        bodies = book.bodies[span.start : span.stop]
        return self._runner.run(timed(bodies, partial(self._add, session_name(place)), seconds))

    def read(self, place: Place, portion: Portion) -> float:
        """Fetch the newest bodies without decoding them; return the time."""
        return self._runner.run(self._read(session_name(place), portion.messages))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book; return the time."""
        clients = [partial(self._add, session_name(place)) for place in places]
        return self._runner.run(together(book.bodies, clients))

    def close(self, file: str) -> None:
        """Do nothing: the connections are shared."""

    def end(self) -> None:
        """Release everything."""
        self._runner.run(self._pool.close())
        self._runner.close()

    async def _add(self, session: str, body: bytes) -> None:
        await self._pool.execute(_INSERT, session, body)

    async def _read(self, session: str, count: int) -> float:
        start = time.perf_counter()
        await self._pool.fetch(_NEWEST, session, count)
        return time.perf_counter() - start


class BarePostgres:
    """A loop that writes what Turnstate writes, to its own schema."""

    def __init__(self, url: str, *, makes: bool) -> None:
        self.name = "bare loop that makes the rows" if makes else "bare loop"
        schema = "bare_makes" if makes else "bare"
        self._makes, self._record, self._sql = makes, recorder(), _BARE.format(schema=schema)
        self._ready, self._known = dict[str, list[Record]](), set[str]()
        self._runner = asyncio.Runner()
        self._pool = self._runner.run(_pool(url))
        self._manager = self._runner.run(_opened(f"{url}{'&' if '?' in url else '?'}schema={schema}"))
        self.settings = settings_text(self._runner.run(_settings(self._pool)))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one, each in a transaction, until the time is up; return the time of each."""
        self._make([place])
        given = self._given(book)[span.start : span.stop]
        return self._runner.run(timed(given, partial(self._add, session_name(place)), seconds))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book; return the time."""
        self._make(places)
        clients = [partial(self._add, session_name(place)) for place in places]
        return self._runner.run(together(self._given(book), clients))

    def end(self) -> None:
        """Release everything."""
        self._runner.run(self._pool.close())
        self._runner.run(self._manager.close())
        self._runner.close()

    def _given(self, book: Book) -> Sequence[Message | Record]:
        if self._makes:
            return book.messages
        if book.path not in self._ready:
            self._ready[book.path] = [self._record(message) for message in book.messages]
        return self._ready[book.path]

    def _make(self, places: Sequence[Place]) -> None:
        for name in {session_name(place) for place in places} - self._known:
            self._runner.run(self._manager.create(user="u", id=name))
            self._known.add(name)

    async def _add(self, session: str, given: Message | Record) -> None:
        record = self._record(given) if isinstance(given, Message) else given
        made, now = entry_columns([record]), time.time_ns() // 1_000_000
        columns = (session, record.tokens, now, *(made[name][0] for name in _COLUMNS))
        await self._pool.execute(self._sql, *columns)


async def _pool(url: str) -> Any:
    return await asyncpg.create_pool(url, min_size=1, max_size=MAX_CONNECTIONS, reset=_nothing)


async def _nothing(_connection: Any) -> None:
    """Do not reset a connection; Turnstate does not do so either."""


async def _settings(pool: Any) -> dict[str, str]:
    return {name: await pool.fetchval(f"SHOW {name}") for name in POSTGRES_SETTINGS}


async def _opened(url: str) -> SessionManager:
    return await SessionManager.open(url)
