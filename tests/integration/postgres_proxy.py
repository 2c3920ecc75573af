"""A way to a server that can lose an answer: the request arrives, is done, and nobody hears of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Passes bytes on between a socket in its folder and the server's."""

    def __init__(self, folder: Path, server: Path) -> None:
        self._folder, self._server = folder, server
        self._losing = False
        self.requests, self.lost = 0, 0

    def url(self, **settings: str) -> str:
        """Name the server through the proxy."""
        return f"postgresql://postgres@/postgres?{urlencode({'host': str(self._folder), **settings})}"

    def lose_next_answer(self) -> None:
        """Keep the next answer of the server back, and break the connection instead."""
        self._losing = True

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._serve, str(self._folder / SOCKET))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        await self._listener.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(str(self._server / SOCKET))
        tasks = [
            asyncio.create_task(self._pass_on(reader, requests)),
            asyncio.create_task(self._pass_answers(answers, writer)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (requests, writer):
            end.close()
            with suppress(OSError):
                await end.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.requests += 1
            writer.write(data)
            await writer.drain()

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self._losing:
                self._losing, self.lost = False, self.lost + 1
                return
            writer.write(data)
            await writer.drain()
