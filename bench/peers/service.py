"""Serves a peer that keeps sessions: reads requests line by line, runs and times each, and answers in JSON.

A peer's script defines two things: how to convert our messages to its own, and how to open a session.
Messages come from JSONL files, by line numbers; they are read and converted before any clock starts. With
``full``, every connection is set to wait for the disk.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from itertools import islice
from typing import Any, Protocol

Row = dict[str, Any]


class Handle(Protocol):
    """An open session."""

    async def write(self, messages: Sequence[Any]) -> None:
        """Add messages in one step."""
        ...

    async def read(self, count: int) -> int:
        """Read the newest messages, or all if the peer cannot read fewer; return how many."""
        ...

    async def settings(self) -> dict[str, str]:
        """Return the durability of a write, as reported by the connection that writes."""
        ...

    async def close(self) -> None:
        """Close the session."""
        ...


class Peer(Protocol):
    """What a peer's script has to define."""

    packages: tuple[str, ...]

    def messages(self, row: Row) -> list[Any]:
        """Convert one of our messages to one or several of the peer's."""
        ...

    async def opened(self, path: str, session: str) -> Handle:
        """Open a session in a file or on a server; create it if it does not exist."""
        ...


class Service:
    """Answers requests; sessions stay open until they are closed."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._handles = dict[tuple[str, str], Handle]()
        self._files = dict[str, list[list[Any]]]()

    async def settings(self, path: str, session: str) -> dict[str, str]:
        """Return the durability of a write."""
        return await (await self._handle(path, session)).settings()

    async def fill(self, path: str, session: str, file: str, first: int, last: int) -> float:
        """Write many messages in one step; return the time."""
        handle = await self._handle(path, session)
        messages = [one for group in self._lines(file, first, last) for one in group]
        start = time.perf_counter()
        await handle.write(messages)
        return time.perf_counter() - start

    async def append(
        self, path: str, session: str, file: str, first: int, last: int, seconds: float
    ) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        handle, spent = await self._handle(path, session), list[float]()
        for messages in self._lines(file, first, last):
            start = time.perf_counter()
            await handle.write(messages)
            spent.append(time.perf_counter() - start)
            if sum(spent) > seconds:
                break
        return spent

    async def read(self, path: str, session: str, count: int) -> float:
        """Reopen a session and read it; return the total time."""
        start = time.perf_counter()
        handle = await self._peer.opened(path, session)
        await handle.read(count)
        spent = time.perf_counter() - start
        await handle.close()
        return spent

    async def newest(self, path: str, session: str, count: int) -> float:
        """Read the newest messages of an open session; return the time."""
        handle = await self._handle(path, session)
        start = time.perf_counter()
        await handle.read(count)
        return time.perf_counter() - start

    async def clients(self, path: str, sessions: list[str], file: str, each: int) -> float:
        """Let all clients concurrently write their part of a file to their session; return the time."""
        handles = [await self._handle(path, session) for session in sessions]
        parts = [self._lines(file, place * each, (place + 1) * each) for place in range(len(sessions))]
        start = time.perf_counter()
        await asyncio.gather(*map(_write_all, handles, parts))
        return time.perf_counter() - start

    async def close(self, path: str) -> None:
        """Close all sessions of a file."""
        for key in [key for key in self._handles if key[0] == path]:
            await self._handles.pop(key).close()

    async def _handle(self, path: str, session: str) -> Handle:
        if (path, session) not in self._handles:
            self._handles[path, session] = await self._peer.opened(path, session)
        return self._handles[path, session]

    def _lines(self, file: str, first: int, last: int) -> list[list[Any]]:
        known = self._files.setdefault(file, [])
        if len(known) < last:
            with open(file, encoding="utf-8") as lines:
                known += [self._peer.messages(json.loads(line)) for line in islice(lines, len(known), last)]
            gc.collect()
            gc.freeze()  # the collector need not scan what is kept for later
        return known[first:last]


async def _write_all(handle: Handle, parts: list[list[Any]]) -> None:
    for messages in parts:
        await handle.write(messages)


async def serve(peer: Peer) -> None:
    """Print the versions, then answer line by line."""
    service = Service(peer)
    _print({name: metadata.version(name) for name in peer.packages})
    for line in sys.stdin:
        asked = json.loads(line)
        _print(await getattr(service, asked.pop("do"))(**asked))


def _print(found: Any) -> None:
    print(json.dumps(found), flush=True)
