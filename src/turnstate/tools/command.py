"""A built-in tool that runs a command in the workspace.

The command gets its own process group, which is killed as a whole when the time is over or the agent is
cancelled, so nothing is left running. Output beyond a limit is dropped while it arrives, the end of it
kept. The environment is the caller's without variables that look like secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from contextlib import suppress

from ..errors import InputError
from ..message import ToolCallResult
from .definition import BUILTIN, ToolContext, tool

__all__ = ["run_command"]

SECONDS = 120.0
MOST_SECONDS = 3_600.0
MOST_BYTES = 8_000_000
_PIECE = 65_536
_KILL_AFTER = 2.0  # seconds between asking a command to end and ending it

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


class _Output:
    """The output of a command: all of it, or the beginning and the end."""

    def __init__(self) -> None:
        self._head, self._tail, self._dropped = bytearray(), deque[bytes](), 0
        self._tail_size = 0

    def add(self, piece: bytes) -> None:
        room = MOST_BYTES // 2 - len(self._head)
        self._head += piece[: max(0, room)]
        if rest := piece[max(0, room) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail_size > MOST_BYTES // 2:
            oldest = self._tail.popleft()
            self._tail_size -= len(oldest)
            self._dropped += len(oldest)

    def text(self) -> str:
        gap = f"\n[{self._dropped:,} bytes left out]\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + b"".join(self._tail)).decode(errors="replace")


@tool(origin=BUILTIN, changes_files=True, timeout=MOST_SECONDS + 10)
async def run_command(command: str, context: ToolContext, seconds: float = SECONDS) -> ToolCallResult | str:
    """Run a shell command in the workspace and return what it prints, errors included.

    Args:
        command: The command line, for `sh`.
        seconds: How long it may take.
    """
    if "\0" in command:
        raise InputError("a command must not contain a NUL character")
    seconds = min(max(0.1, seconds), MOST_SECONDS)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=context.workspace.root if context.workspace else None,
        env={name: value for name, value in os.environ.items() if not _SECRET.search(name)},
        start_new_session=True,
    )
    output, late = _Output(), False
    try:
        async with asyncio.timeout(seconds):
            await _drain(process, output)
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        await _end(process)
    text = output.text()
    if late:
        return _failed(context, f"{text}\n[stopped after {seconds:g} seconds]")
    if process.returncode:
        return _failed(context, f"{text}\n[exit code {process.returncode}]")
    return text or "[no output]"


async def _drain(process: Process, output: _Output) -> None:
    assert process.stdout is not None  # noqa: S101
    while piece := await process.stdout.read(_PIECE):
        output.add(piece)


async def _end(process: Process) -> None:
    """End the whole process group, first gently; also what a command that ended left in the background."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        if how == signal.SIGTERM:
            with suppress(TimeoutError):
                await asyncio.wait_for(_gone(process.pid), _KILL_AFTER)
    await process.wait()


async def _gone(group: int) -> None:
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.02)


def _failed(context: ToolContext, text: str) -> ToolCallResult:
    return ToolCallResult.of(context.call.id, text.lstrip("\n"), is_error=True)
