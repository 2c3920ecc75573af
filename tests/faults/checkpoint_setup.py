"""A conversation that changed files, right before it goes back; as often as it is needed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from checkpoint_process import ACTS
from restore_setup import Worker
from restore_setup import state as files_of

from turnstate import Message
from turnstate.checkpoints.manager import CheckpointManager
from turnstate.conversation import fields
from turnstate.home import Home
from turnstate.session import Session, SessionManager

WORKER = Path(__file__).with_name("checkpoint_process.py")


class Moment(NamedTuple):
    """What a user sees: the files, and the conversation."""

    files: dict[str, tuple[int, bytes]]
    conversation: bytes


class CheckpointSetup:
    """The moment before an act; the store lies among the files, and no restore of them may touch it."""

    def __init__(self, folder: Path, act: str) -> None:
        self.folder, self.act = folder, act
        self.run, self.template, self.tree = folder / "run", folder / "template", folder / "run" / "tree"
        self.tree.mkdir(parents=True)
        self.session = asyncio.run(self._prepare())
        self._keep()
        self.before = self.moment()
        self.begin()
        asyncio.run(self._perform(act))
        self.target = self.moment()
        self.begin()

    def begin(self) -> None:
        """Put everything back as it was before the act."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.template, self.run, symlinks=True)

    def cut_off(self) -> None:
        """Let everything begin where it stands now, with an act that was cut off."""
        self.act = "open"
        self._keep()

    def moment(self) -> Moment:
        """See files and conversation as the next process finds them, which settles what was cut off."""
        return asyncio.run(self._moment())

    @contextmanager
    def worker(self, plant: str = "") -> Iterator[Worker]:
        """Start a process for the act, warm and waiting."""
        command = [sys.executable, str(WORKER), self.act, str(self.run), self.session, plant]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, start_new_session=True, **pipes) as process:
            worker = Worker(process)
            try:
                assert worker.hear() == "ready"
                yield worker
            finally:
                process.kill()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Session, CheckpointManager]]:
        """Open everything as a new process does."""
        async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
            session = await sessions.open(self.session)
            state = await session.conversation()
            home = Home(self.run / "home")
            yield session, await CheckpointManager.open(state, self.tree, session=session, home=home)

    def undone(self) -> Moment:
        """Take a restore back."""
        asyncio.run(self._perform("undo"))
        return self.moment()

    def labels_left(self) -> list[str]:
        """List the checkpoints of the tangent that was left, as they are seen when it is taken up again."""
        return asyncio.run(self._labels_left())

    def append(self, text: str) -> None:
        """Let somebody go on with the conversation who knows nothing of checkpoints."""

        async def said() -> None:
            async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
                await (await sessions.open(self.session)).append(Message.user(text))

        asyncio.run(said())

    @property
    def intent(self) -> Path | None:
        """The intent that stands there, if one does."""
        return next(iter((self.run / "home" / "checkpoints").glob("*/intent.json")), None)

    async def _moment(self) -> Moment:
        async with self.opened() as (session, _):
            told = fields(await session.conversation())
            found = {
                name: file for name, file in files_of(self.tree).items() if not name.startswith("agent.db")
            }
            return Moment(found, msgspec.json.encode(told, order="sorted"))

    async def _labels_left(self) -> list[str]:
        async with self.opened() as (_, checkpoints):
            (kept,) = checkpoints.state.kept_tangents()
            checkpoints.state.reopen_tangent(kept.name)
            return [turn.label for turn in checkpoints.turns()]

    async def _perform(self, act: str) -> None:
        async with self.opened() as (_, checkpoints):
            await ACTS[act](checkpoints)

    async def _prepare(self) -> str:
        async with await SessionManager.open(f"sqlite:///{self.tree}/agent.db") as sessions:
            session = await sessions.create(system="You work.")
            self.session = session.id
        self._write(a="one", b="one", mine="the user's", secret="not ignored yet")
        async with self.opened() as (session, checkpoints):
            await self._turn(checkpoints, a="two", new="1")
            if self.act == "leave":
                await checkpoints.enter_tangent()
            await self._turn(checkpoints, a="three", newer="2")
            (self.tree / "b").unlink()
            await self._turn(checkpoints, **{"a": "four", ".gitignore": "secret\n"})
            self._write(secret="ignored since")
            await session.commit(checkpoints.state)
            if self.act == "undo":
                await checkpoints.restore("1")
                await self._turn(checkpoints, a="another way")
        self._write(mine="changed since, and in no snapshot")
        return self.session

    async def _turn(self, checkpoints: CheckpointManager, **files: str) -> None:
        checkpoints.state.set_next_user_message(f"write {files}")
        self._write(**files)
        await checkpoints.tool_finished("write")
        checkpoints.state.push_assistant_message(Message.assistant("done"))
        await checkpoints.turn_finished(f"write {files}")

    def _write(self, **files: str) -> None:
        for name, text in files.items():
            (self.tree / name).write_text(text)

    def _keep(self) -> None:
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.run, self.template, symlinks=True)
