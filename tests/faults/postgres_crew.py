"""Processes that write while a server crashes: crowds of their own, whose promises are kept here.

They open their stores once, and end when their input does. What they say beside their promises, on the
error stream, is a fault: a store that comes back by itself has nothing to complain of.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

import postgres_crowd
from postgres_crowd import HANG, SIZE, Manner
from promises import Promises

PROCESSES, LANES = 3, 4


class Crew:
    """Some processes, and what they said."""

    def __init__(self, url: str, ids: Sequence[str], manner: Manner) -> None:
        self.promises = Promises()
        self.failed, self.repeated = 0, 0
        self._ready, self._gone = 0, 0
        lanes = [ids[lane % len(ids)] for lane in range(LANES)]
        self._commands = [(url, manner, f"p{number}", *lanes) for number in range(PROCESSES)]
        self._complaints = TemporaryFile()  # noqa: SIM115 - closed when the crew has ended

    async def hear_more(self, count: int) -> None:
        """Wait until all write, and for some more acknowledgements."""
        enough = len(self.promises.acked) + count
        async with asyncio.timeout(HANG):
            while self._ready < PROCESSES or len(self.promises.acked) < enough:
                assert not self._gone, f"a process that should write has ended: {self._complaint()}"
                await asyncio.sleep(0.002)

    async def __aenter__(self) -> Self:
        streams = {"stdin": PIPE, "stdout": PIPE, "stderr": self._complaints}
        program = (sys.executable, postgres_crowd.__file__)
        self._processes = [
            await asyncio.create_subprocess_exec(*program, *command, **streams) for command in self._commands
        ]
        self._hearing = [asyncio.create_task(self._hear(process)) for process in self._processes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.stdin.close()
        await asyncio.gather(*self._hearing)
        ends = [await process.wait() for process in self._processes]
        with self._complaints:
            assert kind or (self._complaint(), ends) == ("", [0] * PROCESSES)

    async def _hear(self, process: Process) -> None:
        """Note what one of them says until it ends."""
        async for line in process.stdout:
            said = json.loads(line)
            if "ask" in said:
                self.promises.ask(said["ask"], SIZE)
            self.promises.hear([said])
            self._ready += "ready" in said
            self.failed += said.get("failed", 0)
            self.repeated += said.get("repeated", 0)
        self._gone += 1

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode()
