"""A built-in tool that runs a command in the workspace; hooks use its `run_program` as well.

A program gets its own process group, which is killed as a whole when it times out or the agent is canceled,
so nothing is left running. Of output beyond a limit, the beginning and the end are kept; the middle is
dropped as it arrives. The environment is the caller's without variables that look like secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..message import ToolCallResult
from .definition import BUILTIN, ToolContext, tool
from .process import end_group

__all__ = ["CommandResult", "run_command", "run_program"]

SECONDS = 120.0
MOST_SECONDS = 3_600.0
MOST_BYTES = 8_000_000
_PIECE = 65_536

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
        while (excess := self._tail_size - MOST_BYTES // 2) > 0:
            oldest = self._tail.popleft()
            if kept := oldest[excess:]:
                self._tail.appendleft(kept)
            self._tail_size -= len(oldest) - len(kept)
            self._dropped += len(oldest) - len(kept)

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
    root = context.workspace.root if context.workspace else None
    done = await run_program("/bin/sh", "-c", command, folder=root, seconds=seconds)
    if done.code is None:
        return _failed(context, f"{done.output}\n[stopped after {seconds:g} seconds]")
    if done.code:
        return _failed(context, f"{done.output}\n[exit code {done.code}]")
    return done.output or "[no output]"


class CommandResult(NamedTuple):
    """How a program ended: its exit code, or None if it timed out, and what it printed."""

    code: int | None
    output: str
    errors: str = ""


async def run_program(
    *command: str, folder: Path | None, seconds: float, given: bytes | None = None
) -> CommandResult:
    """Run a program for at most `seconds`; with `given` as its input, stderr is separate from stdout."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL if given is None else PIPE,
        stdout=PIPE,
        stderr=STDOUT if given is None else PIPE,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not _SECRET.search(name)},
        start_new_session=True,
    )
    output, errors, late = _Output(), _Output(), False
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(
                _feed(process, given), _drain(process.stdout, output), _drain(process.stderr, errors)
            )
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        await end_group(process)
    return CommandResult(None if late else process.returncode, output.text(), errors.text())


async def _feed(process: Process, given: bytes | None) -> None:
    if process.stdin is not None and given is not None:
        with suppress(ConnectionError):  # the program need not read its input
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()


async def _drain(stream: StreamReader | None, output: _Output) -> None:
    while stream is not None and (piece := await stream.read(_PIECE)):
        output.add(piece)


def _failed(context: ToolContext, text: str) -> ToolCallResult:
    return ToolCallResult.of(context.call.id, text.lstrip("\n"), is_error=True)
