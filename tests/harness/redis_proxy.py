"""A proxy for Redis that loses answers: the request is done, and the caller does not learn of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from ssl import SSLContext
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards bytes between its own socket and the socket of the server."""

    def __init__(
        self, folder: Path, server: str, *, port: int | None = None, tls: SSLContext | None = None
    ) -> None:
        self._path, self._server, self.port, self._tls = folder / "proxy.sock", server, port, tls
        self.losing = 0  # answers to come that break the connection instead
        self.odds, self.random = 0.0, Random()  # how likely the answer to a script does
        self.lost = 0  # answers that did
        self.silent = False  # answers are swallowed, and the connection stays
        self.requests = list[bytes]()
        self._serving = set[asyncio.Task[None]]()
        self._ends = set[asyncio.StreamWriter]()

    def url(self, **options: object) -> str:
        """Return the URL of the server through the proxy."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+unix://{self._path}?{query}"

    async def __aenter__(self) -> Self:
        if self.port is None:
            self._listener = await asyncio.start_unix_server(self._accept, str(self._path))
        else:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        await self._listener.wait_closed()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for end in self._ends:  # also of a task that was cancelled before it began
            end.close()
            with suppress(OSError):
                await end.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(self._server)
        asked = list[bytes]()
        tasks = [
            asyncio.create_task(self._pass_on(reader, requests, asked)),
            asyncio.create_task(self._pass_answers(answers, writer, asked)),
        ]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for end in (requests, writer):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await reader.read(1 << 16):
            self.requests.append(data)
            asked[:] = [data]
            writer.write(data)
            await writer.drain()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[bytes]
    ) -> None:
        while data := await reader.read(1 << 16):
            to_script = any(b"EVAL" in request for request in asked)
            if self.losing or (to_script and self.random.random() < self.odds):
                self.losing = max(0, self.losing - 1)
                self.lost += 1
                return
            if not self.silent:
                writer.write(data)
                await writer.drain()
