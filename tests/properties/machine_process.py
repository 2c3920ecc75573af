"""Another process: it reads and writes conversations on a server or a file, as commands tell it.

A command is a line of JSON on its standard input, and it prints a line of JSON for each.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from tests.harness.programs import environment, program
from tests.harness.state_cap import state_cap
from tests.properties.machine import ALL, POLICY, View, seen
from turnstate import Budget, Message
from turnstate.session import SessionManager


class Process:
    """The other process, which runs while it is open."""

    def __init__(self) -> None:
        self._running = subprocess.Popen(
            program("tests.properties.machine_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    async def append(self, url: str, id: str, message: Message) -> Message:
        """Append a message, and return it."""
        await self._asked(_Command(url, id, said=message))
        return message

    async def seen(self, url: str, id: str, budgets: Sequence[Budget], cap: int) -> View:
        """Return everything that the process sees of a conversation."""
        line = await self._asked(_Command(url, id, limits=[one.window for one in budgets], cap=cap))
        found = msgspec.json.decode(line, type=list[str | None])
        fields, tangents, messages, *windows = (
            base64.b64decode(part) if part is not None else None for part in found
        )
        assert fields is not None
        assert tangents is not None
        assert messages is not None
        return View(fields, tangents, messages, tuple(windows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.communicate()

    async def _asked(self, command: _Command) -> bytes:
        stdin, stdout = self._running.stdin, self._running.stdout
        assert stdin
        assert stdout
        stdin.write(msgspec.json.encode(command) + b"\n")
        stdin.flush()
        line = await asyncio.to_thread(stdout.readline)
        assert line, "the other process ended"
        return line


class _Command(msgspec.Struct):
    url: str
    id: str
    said: Message | None = None
    limits: list[int] = []
    cap: int = ALL


async def _answer(command: _Command) -> Any:
    async with await SessionManager.open(command.url, policy=POLICY) as sessions:
        session = await sessions.open(command.id)
        if command.said is not None:
            await session.append(command.said)
            return None
        view = await seen(session, [Budget(limit) for limit in command.limits])
    parts = (view.fields, view.tangents, view.messages, *view.windows)
    return [base64.b64encode(one).decode() if one is not None else None for one in parts]


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        command = msgspec.json.decode(line, type=_Command)
        with state_cap(command.cap):
            print(msgspec.json.encode(asyncio.run(_answer(command))).decode(), flush=True)
