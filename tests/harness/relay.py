"""What the proxies share: they accept connections, and pass on what either side says until one is closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

Line = TypeVar("Line")
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Relay(Generic[Line]):
    """Forwards bytes between its own socket and that of a server; a subclass says which, and what is lost."""

    def __init__(self) -> None:
        self._serving = set[asyncio.Task[None]]()
        self._ends = set[asyncio.StreamWriter]()

    async def listen(self) -> asyncio.Server:
        """Listen for connections."""
        raise NotImplementedError

    async def connected(self) -> tuple[Reader, Writer, Line]:
        """Connect to the server; return the connection, and the state of it."""
        raise NotImplementedError

    async def pass_on(self, reader: Reader, writer: Writer, line: Line) -> None:
        """Pass requests on."""
        raise NotImplementedError

    async def pass_answers(self, reader: Reader, writer: Writer, line: Line) -> None:
        """Pass answers on."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._listener = await self.listen()
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

    def accept(self, reader: Reader, writer: Writer) -> None:
        """Serve a connection."""
        self._ends.add(writer)
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        answers, requests, line = await self.connected()
        tasks = [
            asyncio.create_task(self.pass_on(reader, requests, line)),
            asyncio.create_task(self.pass_answers(answers, writer, line)),
        ]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for end in (requests, writer):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()
