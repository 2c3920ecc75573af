"""Processes of tools: each has its own process group, and the whole group ends with it.

So nothing that a command or an MCP server started is left running. No wait depends on pipes, since a process
that left its group may hold them open forever. A local MCP server communicates over standard input and
output, one message per line; reading a line takes time linear in its length.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

__all__ = ["LastWords", "end_group", "message_streams"]

KILL_AFTER = 2.0
"""Seconds between asking a process to end and killing it."""

POLL = 0.02
CHUNK = 1 << 20
LONGEST_MESSAGE = 128_000_000
"""Maximum bytes of one message from a server; a longer one ends the connection."""

LAST_WORDS = 400
"""How many bytes to keep of a server's standard error."""


class LastWords:
    """Why a process failed: the end of its standard error, and its exit code."""

    def __init__(self) -> None:
        self._text, self.code = b"", 0

    def __str__(self) -> str:
        text = self._text.decode(errors="replace").strip()
        ended = f"it ended with exit code {self.code}" if self.code > 0 else ""  # not killed by our signal
        return ": ".join(filter(None, (ended, text)))

    async def listen(self, process: Process) -> None:
        """Read until the process closes its standard error."""
        assert process.stderr is not None  # noqa: S101
        while chunk := await process.stderr.read(CHUNK):
            self._text = (self._text + chunk)[-LAST_WORDS:]


async def end_group(process: Process) -> None:
    """Terminate the whole group of a process, then kill it; do so even if the process itself has ended."""
    try:
        for how in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(process.pid, how)
            if how == signal.SIGTERM:
                await _gone(process.pid, KILL_AFTER)
    except ProcessLookupError:
        pass
    while process.returncode is None:  # wait() would also wait for pipes that another process may hold
        await asyncio.sleep(POLL)
    if (transport := getattr(process, "_transport", None)) is not None:
        transport.close()


async def _gone(group: int, seconds: float) -> None:
    """Wait at most `seconds` for a group to end; raise ProcessLookupError once it has ended."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        os.killpg(group, 0)
        await asyncio.sleep(POLL)


@asynccontextmanager
async def message_streams(
    command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str | None, last_words: LastWords
) -> AsyncIterator[tuple[Any, Any]]:
    """Start an MCP server and yield the streams of its messages, as the SDK expects them."""
    import anyio

    process = await asyncio.create_subprocess_exec(
        command,
        *args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        limit=CHUNK,
    )
    try:
        deliver, received = anyio.create_memory_object_stream[Any](0)
        send, waiting = anyio.create_memory_object_stream[Any](0)
        heard = asyncio.create_task(last_words.listen(process))
        tasks = [
            heard,
            asyncio.create_task(_read(process, deliver)),
            asyncio.create_task(_write(process, waiting)),
        ]
        try:
            yield received, send
        finally:
            received.close()
            send.close()
            if process.stdin is not None:
                process.stdin.close()  # a well-behaved server then exits by itself
            with suppress(ProcessLookupError):
                await _gone(process.pid, KILL_AFTER)
            await asyncio.wait([heard], timeout=POLL)  # its last output may still be on its way
            last_words.code = process.returncode or 0
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    finally:
        with suppress(ProcessLookupError):
            await asyncio.shield(asyncio.ensure_future(end_group(process)))


async def _read(process: Process, deliver: Any) -> None:
    """Deliver the messages that a server prints; deliver an error for a line that is not a message."""
    import anyio

    closed = False
    async with deliver:
        async for line in _lines(process):
            if not closed and line.strip():
                try:
                    await deliver.send(_message(line))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    closed = True  # keep reading: a server that blocks on a write cannot exit


async def _lines(process: Process) -> AsyncIterator[bytes]:
    """Yield lines of any length; stop at one that is too long."""
    assert process.stdout is not None  # noqa: S101
    line = bytearray()
    while len(line) <= LONGEST_MESSAGE and (chunk := await process.stdout.read(CHUNK)):
        first, *others = chunk.split(b"\n")
        line += first
        for piece in others:
            yield bytes(line)
            line = bytearray(piece)


def _message(line: bytes) -> Any:
    from mcp import types
    from mcp.shared.message import SessionMessage

    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(process: Process, waiting: Any) -> None:
    assert process.stdin is not None  # noqa: S101
    async with waiting:
        async for message in waiting:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(ConnectionError):  # the server has ended; the reader notices
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
