"""A built-in tool that runs a command in the workspace; hooks use its `run_program` as well.

A program gets its own process group, which is ended as a whole when the program ends, when it times out, when
the agent is canceled, and when this process ends, so nothing is left running. Of output beyond a limit, the
beginning and the end are kept; the middle is dropped as it arrives. Of the environment, a program gets only
what is named.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..message import ToolCallResult
from .definition import BUILTIN, ToolContext, tool
from .process import environment, group_of, is_alive, watchdog

SECONDS = 120.0
MOST_SECONDS = 3_600.0
MOST_BYTES = 8_000_000
LAST_WORDS_SECONDS = 0.2
"""How long a process in the background is listened to after its command has ended."""
_PIECE = 65_536


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
        command: The command line, for `sh`. What it leaves in the background is ended with it.
        seconds: How long it may take.
    """
    if "\0" in command:
        raise InputError("a command must not contain a NUL character")
    seconds = min(max(0.1, seconds), MOST_SECONDS)
    root = context.workspace.root if context.workspace else None
    done = await run_program(
        "/bin/sh", "-c", command, folder=root, seconds=seconds, variables=context.variables
    )
    if done.code is None:
        return _failed(context, f"{done.output}\n[stopped after {seconds:g} seconds]")
    output = f"{done.output}\n[what it left in the background was ended]" if done.left else done.output
    if done.code:
        return _failed(context, f"{output}\n[exit code {done.code}]")
    return output.lstrip("\n") if done.left else output or "[no output]"


class CommandResult(NamedTuple):
    """How a program ended: its exit code, or None if it timed out, and what it printed.

    ``left`` is True if it left processes in the background, which were ended.
    """

    code: int | None
    output: str
    errors: str = ""
    left: bool = False


async def run_program(
    *command: str,
    folder: Path | None,
    seconds: float,
    given: bytes | None = None,
    variables: Iterable[str] = (),
) -> CommandResult:
    """Run a program for at most `seconds`; with `given` as its input, stderr is separate from stdout.

    The program is done when it ends itself, even if processes that it left in the background hold its output
    open. `variables` are names of environment variables that it gets besides the usual ones.
    """
    loop = asyncio.get_running_loop()
    watchdog.start()
    transport, running = await loop.subprocess_exec(
        lambda: _Running(loop.create_future()),
        *command,
        stdin=DEVNULL if given is None else PIPE,
        stdout=PIPE,
        stderr=STDOUT if given is None else PIPE,
        cwd=folder,
        env=environment(variables),
        start_new_session=True,
    )
    late = left = False
    async with group_of(transport):
        running.feed(transport, given)
        try:
            async with asyncio.timeout(seconds):
                await running.ended
        except TimeoutError:
            late = True
        if not late and (left := is_alive(transport.get_pid())):
            await asyncio.sleep(LAST_WORDS_SECONDS)
        running.drain(transport)
    output, errors = (running.outputs[number].text() for number in (1, 2))
    return CommandResult(None if late else transport.get_returncode(), output, errors, left)


class _Running(asyncio.SubprocessProtocol):
    """A program that runs: what it has printed, and a future that is done when it ends."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self.ended, self.outputs = ended, {1: _Output(), 2: _Output()}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def feed(self, transport: asyncio.SubprocessTransport, given: bytes | None) -> None:
        if given is not None and isinstance(pipe := transport.get_pipe_transport(0), asyncio.WriteTransport):
            pipe.write(given)  # the program need not read its input
            pipe.write_eof()

    def drain(self, transport: asyncio.SubprocessTransport) -> None:
        """Take what the pipes contain now; the event loop may not have read it yet."""
        for number, output in self.outputs.items():
            pipe = transport.get_pipe_transport(number)
            if pipe is None or pipe.is_closing():
                continue  # it was read to its end
            with suppress(BlockingIOError):
                for _ in range(MOST_BYTES // _PIECE):  # a process in the background may go on printing
                    piece = os.read(pipe.get_extra_info("pipe").fileno(), _PIECE)
                    output.add(piece)
                    if not piece:
                        break


def _failed(context: ToolContext, text: str) -> ToolCallResult:
    return ToolCallResult.of(context.call.id, text.lstrip("\n"), is_error=True)
