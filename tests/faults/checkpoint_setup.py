"""A session whose turns changed files, right before a restore; each kill starts from a copy of it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.faults.checkpoint_process import OPERATIONS
from tests.faults.restore_setup import Worker
from tests.faults.restore_setup import state as files_of
from tests.harness.programs import environment, program
from turnstate import Message
from turnstate.checkpoints import CheckpointManager
from turnstate.conversation import fields
from turnstate.home import Home
from turnstate.session import Session, SessionManager

TANGENTS = ("leave", "leave without files", "undo an exit")
"""The operations that need a tangent."""

_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Moment(NamedTuple):
    """What a user sees: files and conversation, in which ids are numbered, since copies get new ones."""

    files: dict[str, tuple[int, bytes]]
    conversation: bytes


def with_numbers(told: bytes) -> bytes:
    """Replace each id by its number in the order in which they appear."""
    numbers = dict[bytes, bytes]()
    return _ID.sub(lambda match: numbers.setdefault(match[0], b"id %d" % len(numbers)), told)


class CheckpointSetup:
    """The state before an operation. The store is inside the work tree, and no restore may touch it."""

    def __init__(self, folder: Path, operation: str) -> None:
        self.folder, self.operation = folder, operation
        self.run, self.template, self.tree = folder / "run", folder / "template", folder / "run" / "tree"
        self.tree.mkdir(parents=True)
        self.session = asyncio.run(self._prepare())
        self._keep()
        self.before = self.moment()
        self.begin()
        asyncio.run(self._perform(operation))
        self.target = self.moment()
        self.begin()

    def begin(self) -> None:
        """Reset everything to the state before the operation."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.template, self.run, symlinks=True)

    def cut_off(self) -> None:
        """Make the current state, with an interrupted operation, the one that `begin` resets to."""
        self.operation = "open"
        self._keep()

    def moment(self) -> Moment:
        """Return files and conversation as the next process sees them, after it has recovered."""
        return asyncio.run(self._moment())

    @contextmanager
    def worker(self, plant: str = "") -> Iterator[Worker]:
        """Start a process that waits right before the operation."""
        command = program("tests.faults.checkpoint_process", self.operation, self.run, self.session, plant)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as process:
            worker = Worker(process)
            try:
                assert worker.hear() == "ready"
                yield worker
            finally:
                process.kill()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Session, CheckpointManager]]:
        """Open session and checkpoints as a new process does."""
        async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
            session = await sessions.open(self.session)
            yield session, await CheckpointManager.open(session, self.tree, home=Home(self.run / "home"))

    def undone(self) -> Moment:
        """Undo a restore, and return what a user sees then."""
        asyncio.run(self._perform("undo"))
        return self.moment()

    def done(self) -> Moment:
        """Do the operation once more, and return what a user sees then."""
        asyncio.run(self._perform(self.operation))
        return self.moment()

    def undoes(self) -> str:
        """Undo the newest operation, and return its name."""

        async def undone() -> str:
            async with self.opened() as (session, _):
                return await session.undo()

        return asyncio.run(undone())

    def labels_left(self) -> list[str]:
        """Return the labels of the tangent that was left, as they are when it is reopened."""
        return asyncio.run(self._labels_left())

    def append(self, text: str) -> None:
        """Append to the conversation as a process that does not use checkpoints."""

        async def said() -> None:
            async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
                await (await sessions.open(self.session)).append(Message.user(text))

        asyncio.run(said())

    @property
    def intent(self) -> Path | None:
        """The file of the intent, if there is one."""
        return next(iter((self.run / "home" / "checkpoints").glob("*/intent.json")), None)

    async def _moment(self) -> Moment:
        async with self.opened() as (session, _):
            told = fields(await session.conversation(last=1_000))
            found = {
                name: file for name, file in files_of(self.tree).items() if not name.startswith("agent.db")
            }
            return Moment(found, with_numbers(msgspec.json.encode(told, order="sorted")))

    async def _labels_left(self) -> list[str]:
        async with self.opened() as (session, checkpoints):
            (kept,) = await session.tangents()
            await session.reopen_tangent(kept.name)
            return [turn.label for turn in await checkpoints.turns()]

    async def _perform(self, operation: str) -> None:
        async with self.opened() as (_, checkpoints):
            await OPERATIONS[operation](checkpoints)

    async def _prepare(self) -> str:
        async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
            session = await sessions.create(system="You work.")
            self.session = session.id
        self._write(a="one", b="one", mine="the user's", secret="not ignored yet")
        async with self.opened() as (session, checkpoints):
            await self._turn(checkpoints, a="two", new="1")
            if self.operation in TANGENTS:
                await checkpoints.enter_tangent()
            await self._turn(checkpoints, a="three", newer="2")
            (self.tree / "b").unlink()
            await self._turn(checkpoints, **{"a": "four", ".gitignore": "secret\n"})
            self._write(secret="ignored since")
            if self.operation == "undo an exit":
                await checkpoints.leave_tangent("tail")
            if self.operation == "undo":
                await checkpoints.restore("1")
                await self._turn(checkpoints, a="another way")
        self._write(mine="changed since, and in no snapshot")
        return self.session

    async def _turn(self, checkpoints: CheckpointManager, **files: str) -> None:
        await checkpoints.session.append(Message.user(f"write {files}"))
        self._write(**files)
        await checkpoints.tool_finished("write")
        await checkpoints.session.append(Message.assistant("done"))
        await checkpoints.turn_finished(f"write {files}")

    def _write(self, **files: str) -> None:
        for name, text in files.items():
            (self.tree / name).write_text(text)

    def _keep(self) -> None:
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.run, self.template, symlinks=True)
