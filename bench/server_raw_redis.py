"""Raw Redis as a contestant: the cost of the same bytes if nothing else is done with them.

`RawRedis` pushes bodies onto a list: the lower limit. `BareRedis` sets exactly the fields and members that
Turnstate sets, in one transaction without any checks, from rows that are prepared in advance. Both use the
client library that Turnstate uses, with one connection per client.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from redis.asyncio import Redis

from turnstate.stores.redis.layout import moment, named, session_keys
from turnstate.stores.redis.rows import record_arguments
from turnstate.stores.values import Address, Record

from .server_contest import REDIS_SETTINGS, session_name, settings_text
from .server_start import plain
from .session_clock import timed, together
from .session_contest import Place, Portion
from .session_messages import Book
from .session_raw import recorder


class RawRedis:
    """One list of bodies per session."""

    name = "raw RPUSH"

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = _connected(url)
        self.settings = settings_text(self._runner.run(_settings(self._client)))

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in large batches."""
        bodies = book.bodies[span.start : span.stop]
        for start in range(0, len(bodies), 1_000):
            self._runner.run(self._push(_key(place), *bodies[start : start + 1_000]))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Push messages one by one until the time is up; return the time of each."""
        bodies = book.bodies[span.start : span.stop]
        return self._runner.run(timed(bodies, partial(self._push, _key(place)), seconds))

    def read(self, place: Place, portion: Portion) -> float:
        """Fetch the newest bodies without decoding them; return the time."""
        return self._runner.run(self._read(_key(place), portion.messages))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently push their part of a book; return the time."""
        clients = [partial(self._push, _key(place)) for place in places]
        return self._runner.run(together(book.bodies, clients))

    def close(self, file: str) -> None:
        """Do nothing: the connections are shared."""

    def end(self) -> None:
        """Release everything."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    async def _push(self, key: str, *bodies: bytes) -> None:
        await self._client.execute_command("RPUSH", key, *bodies)

    async def _read(self, key: str, messages: int) -> float:
        start = time.perf_counter()
        await self._client.execute_command("LRANGE", key, -messages, -1)
        return time.perf_counter() - start


class BareRedis:
    """A loop that writes what Turnstate writes, under its own keys."""

    name = "bare loop"

    def __init__(self, url: str) -> None:
        self._record, self._numbers = recorder(), count(1)
        self._ready = dict[str, list[Record]]()
        self._runner = asyncio.Runner()
        self._client = _connected(url)
        self.settings = settings_text(self._runner.run(_settings(self._client)))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up; return the time of each."""
        records = self._given(book)[span.start : span.stop]
        return self._runner.run(timed(records, partial(self._add, _bare(place)), seconds))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book; return the time."""
        clients = [partial(self._add, _bare(place)) for place in places]
        return self._runner.run(together(self._given(book), clients))

    def end(self) -> None:
        """Release everything."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _given(self, book: Book) -> list[Record]:
        if book.path not in self._ready:
            self._ready[book.path] = [self._record(message) for message in book.messages]
        return self._ready[book.path]

    async def _add(self, at: Address, record: Record) -> None:
        row, _, entries, bodies, ids, *_, index, _, clock = session_keys(at)
        id, kind, tokens, sum, body = record_arguments(at, [record])
        number = next(self._numbers)
        stamp, spot = moment(time.time_ns() // 1_000), b"1:%d" % number
        line = b"1 %d %s %s %s %d %s 7 %s%s" % (number, tokens, tokens, sum, len(body), stamp, kind, id)
        member = named(at.tenant) + stamp + b":" + spot + b":" + at.session.encode()
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("SET", clock, stamp)
        pipeline.execute_command("ZADD", index, 0, b"w" + member, 0, b"v" + member)
        pipeline.execute_command("HSET", entries, spot, line)
        pipeline.execute_command("HSET", bodies, spot, body)
        pipeline.execute_command("HSET", ids, id, spot)
        head = ("epoch", 1, "branch", 1, "seq", number, "total", number, "version", number, "active", stamp)
        pipeline.execute_command("HSET", row, *head)
        await pipeline.execute()


def _key(place: Place) -> str:
    return f"raw:{session_name(place)}"


def _bare(place: Place) -> Address:
    return Address("bare", session_name(place))


def _connected(url: str) -> Any:
    return Redis.from_url(plain(url), protocol=2)


async def _settings(client: Any) -> dict[str, str]:
    found = await client.config_get(*REDIS_SETTINGS)
    return {str(name): str(value) for name, value in found.items()}
