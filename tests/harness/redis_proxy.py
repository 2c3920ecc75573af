"""A proxy for Redis that loses answers: the request is done, and the caller does not learn of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from ssl import SSLContext

from tests.harness.relay import Reader, Relay, Writer


class Proxy(Relay[list[bytes]]):
    """Forwards bytes between its own socket and the socket of the server; a line is what was asked last."""

    def __init__(
        self, folder: Path, server: str, *, port: int | None = None, tls: SSLContext | None = None
    ) -> None:
        super().__init__()
        self._path, self._server, self.port, self._tls = folder / "proxy.sock", server, port, tls
        self.losing = 0  # answers to come that break the connection instead
        self.odds, self.random = 0.0, Random()  # how likely the answer to a script does
        self.lost = 0  # answers that did
        self.silent = False  # answers are swallowed, and the connection stays
        self.requests = list[bytes]()

    def url(self, **options: object) -> str:
        """Return the URL of the server through the proxy."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+unix://{self._path}?{query}"

    async def listen(self) -> asyncio.Server:
        if self.port is None:
            return await asyncio.start_unix_server(self.accept, str(self._path))
        return await asyncio.start_server(self.accept, "127.0.0.1", self.port, ssl=self._tls)

    async def connected(self) -> tuple[Reader, Writer, list[bytes]]:
        return *(await asyncio.open_unix_connection(self._server)), []

    async def pass_on(self, reader: Reader, writer: Writer, asked: list[bytes]) -> None:
        while data := await reader.read(1 << 16):
            self.requests.append(data)
            asked[:] = [data]
            writer.write(data)
            await writer.drain()

    async def pass_answers(self, reader: Reader, writer: Writer, asked: list[bytes]) -> None:
        while data := await reader.read(1 << 16):
            to_script = any(b"EVAL" in request for request in asked)
            if self.losing or (to_script and self.random.random() < self.odds):
                self.losing = max(0, self.losing - 1)
                self.lost += 1
                return
            if not self.silent:
                writer.write(data)
                await writer.drain()
