"""A proxy for PostgreSQL that loses answers: the request is done, and the caller does not learn of it.

Answers are lost on demand or at random. Only the connection of that answer breaks, perhaps after a part of
it; all others continue.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from urllib.parse import urlencode

from tests.harness.relay import Reader, Relay, Writer

SOCKET = ".s.PGSQL.5432"
READY = b"Z\x00\x00\x00\x05I"  # the end of every answer outside a transaction: what was asked is committed


class _Line:
    """The state of one connection: whether the next answer on it may be lost."""

    marked = False


class Proxy(Relay[_Line]):
    """Forwards bytes between a socket in its folder and the socket of the server."""

    def __init__(self, folder: Path, server: Path) -> None:
        super().__init__()
        self._folder, self._server = folder, server
        self._losing, self._skipped = "", 0
        self._mark, self._share, self._random = b"", 0.0, Random()
        self.requests, self.lost = 0, 0

    def url(self, **settings: str) -> str:
        """Return the URL of the server through the proxy."""
        return f"postgresql://postgres@/postgres?{urlencode({'host': str(self._folder), **settings})}"

    def lose_next_answer(self, *, after: int = 0) -> None:
        """Break the connection instead of forwarding the next answer, or a later one."""
        self._losing, self._skipped = "answer", after

    def lose_next_request(self, *, after: int = 0) -> None:
        """Break the connection instead of forwarding the next request, or a later one."""
        self._losing, self._skipped = "request", after

    def lose_nothing(self) -> None:
        """Forward everything from now on."""
        self._losing, self._share = "", 0.0

    def lose_answers(self, to: bytes, share: float, random: Random) -> None:
        """From now on lose some answers to requests that contain these bytes."""
        self._mark, self._share, self._random = to, share, random

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self.accept, str(self._folder / SOCKET))

    async def connected(self) -> tuple[Reader, Writer, _Line]:
        return *(await asyncio.open_unix_connection(str(self._server / SOCKET))), _Line()

    async def pass_on(self, reader: Reader, writer: Writer, line: _Line) -> None:
        while data := await reader.read(1 << 16):
            self.requests += 1
            if self._is_lost("request"):
                return
            line.marked |= bool(self._mark) and self._mark in data
            writer.write(data)
            await writer.drain()

    async def pass_answers(self, reader: Reader, writer: Writer, line: _Line) -> None:
        while data := await reader.read(1 << 16):
            if self._is_lost("answer"):
                return
            if line.marked and data.endswith(READY):
                line.marked = False
                if self._random.random() < self._share:
                    self.lost += 1
                    writer.write(data[: self._random.randrange(len(data))])
                    return
            writer.write(data)
            await writer.drain()

    def _is_lost(self, what: str) -> bool:
        if self._losing != what:
            return False
        if self._skipped:
            self._skipped -= 1
            return False
        self._losing, self.lost = "", self.lost + 1
        return True
