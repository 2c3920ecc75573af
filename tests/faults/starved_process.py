"""A process that runs operations while it has no descriptors or no memory left, a little more each time.

Each operation is tried with nothing left, then with a little, until it succeeds. After every try there is
enough again: the same operation must succeed then, and nothing may be left open. What happened is printed, a
JSON object a line. With a planted bug, errors are hidden and taken for success.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from turnstate import Budget, Message, SessionManager
from turnstate.checkpoints import CheckpointManager
from turnstate.errors import TurnstateError
from turnstate.home import Home
from turnstate.memory.engines import open_engine
from turnstate.memory.port import User
from turnstate.session import Session

MOST = 400  # tries of one operation
LONG_TEXT = "all work and no play makes the lamp a dull light " * 40


def open_descriptors() -> set[int]:
    """Return the open descriptors of this process."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in found if os.path.exists(f"/proc/self/fd/{number}")}


@contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Allow that many more descriptors, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, limit = open_descriptors(), 0
    while limit - len([one for one in used if one < limit]) < left:
        limit += 1
    while limit in used:
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def sqlite_memory(left: int) -> Iterator[None]:
    """Let SQLite use a few more bytes than it does now: every allocation above that fails."""
    gc.collect()
    apsw.release_memory(1 << 30)
    apsw.hard_heap_limit(max(1, apsw.memory_used() + left * MEMORY_STEP))
    try:
        yield
    finally:
        apsw.hard_heap_limit(0)


MEMORY_STEP = int(os.environ.get("MEMORY_STEP", "2048"))  # bytes
SCARCE = {"descriptors": descriptors, "memory": sqlite_memory}


class Scene:
    """A session with memory and checkpoints, and the operations on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.home = folder, folder / "tree", Home(folder / "home")
        self.url = f"sqlite:///{folder}/agent.db"
        self.tree.mkdir(exist_ok=True)
        self.said = list[str]()  # acknowledged
        self.number = 0

    async def begin(self) -> None:
        engine = await open_engine(f"builtin:{self.folder}/memory.db")
        self.sessions = await SessionManager.open(self.url, memory=engine)
        self.engine = engine
        self.session: Session = await self.sessions.create(id="s1", user="u1", system="You keep a lamp.")
        self.other: Session = await self.sessions.create(id="s2", user="u1")
        (self.tree / "lamp.txt").write_text("dark\n")
        self.checkpoints = await CheckpointManager.open(self.session, self.tree, home=self.home)

    async def append(self, name: str) -> None:
        await self.other.append(Message.user(name), key=name[:100])
        self.said.append(name)

    async def cut(self, name: str) -> None:
        asks, answers = Message.user(f"{name} {LONG_TEXT * 20}"), Message.assistant(f"answer to {name}")
        await self.other.append(asks, answers, key=name)
        await self.other.window(Budget(60_000, output=300))

    async def before_read(self, name: str) -> None:
        while len(self.said) < 60:
            await self.append(f"{len(self.said)} {LONG_TEXT}")

    async def read(self, name: str) -> None:
        """Read the whole path: what is short of memory must not look damaged."""
        session = await self.sessions.open("s2")
        found = [message.text for message in await session.messages()]
        if found != self.said or session.notices:
            raise AssertionError(f"{len(found)} of {len(self.said)} messages, {session.notices}")

    async def before_restore(self, name: str) -> None:
        (self.tree / "lamp.txt").write_text(name)

    async def restore(self, name: str) -> None:
        await self.checkpoints.restore("0", conversation=False)
        assert (self.tree / "lamp.txt").read_text() == "dark\n"

    async def again_restore(self, name: str) -> None:
        """Open the checkpoints again, which finishes a restore that was cut off; then restore."""
        self.checkpoints = await CheckpointManager.reopen(self.session, self.tree, home=self.home)
        await self.restore(name)

    async def deliver(self, name: str) -> None:
        ended = f"ended {name}"
        session = await self.sessions.open_or_create(ended, user="u1")
        if session._row.ended is None:
            await session.append(Message.user(f"My lamp is called {name}."), key="name")
            await session.end()
        self.sessions._clock = lambda: 2**50  # what failed is due again at once
        await self.sessions.deliver()
        waiting = await self.sessions.store.parcels()
        if waiting:
            raise TurnstateError(f"{len(waiting)} parcels wait: {waiting[0].error}")

    async def before_first(self, name: str) -> None:
        self.fresh = await SessionManager.open(self.url)

    async def first(self, name: str) -> None:
        """Use a store that was just opened: it opens what it needs only now."""
        session = await self.fresh.open("s2")
        await session.append(Message.user(name), key=name)
        self.said.append(name)
        await session.messages(last=3)
        assert [hit async for hit in self.fresh.search(name.split()[0], limit=1)]

    async def after_first(self, name: str) -> None:
        await self.fresh.close()

    async def open(self, name: str) -> None:
        async with SessionManager.open(self.url) as sessions:
            session = await sessions.open("s2")
            await session.append(Message.user(name), key=name)
            self.said.append(name)

    async def nothing(self, name: str) -> None:
        """Most operations need no preparation."""

    async def check(self) -> list[str]:
        """Return what is wrong now that there is enough again."""
        broken = list[str]()
        stored = [message.text for message in await (await self.sessions.open("s2")).messages()]
        broken += [f"lost: {name}" for name in self.said if name not in stored]
        broken += [f"twice: {name}" for name in {*stored} if stored.count(name) > 1]
        broken += [f"verify: {one.fault}" async for one in self.sessions.store.verify(repair=False)]
        return broken

    async def remembered(self, name: str) -> bool:
        found = await self.engine.search(User("default", "u1"), name, 50)
        return any(name in one.text for one in found)


async def tried(operation: Callable[[str], Awaitable[None]], name: str, hides: bool) -> str:
    """Run an operation; return the error that it raised."""
    try:
        await operation(name)
    except TurnstateError as error:
        return "" if hides else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"not typed: {type(error).__name__}: {error}"
    return ""


async def run(folder: Path, what: str, scarce: str, step: int, hides: bool) -> None:
    scene = Scene(folder)
    await scene.begin()
    operation = getattr(scene, what)
    nothing = scene.nothing
    before, after = (getattr(scene, f"{when}_{what}", nothing) for when in ("before", "after"))
    retry = getattr(scene, f"again_{what}", operation)
    for number in range(3):  # statements are prepared, threads are born
        await before(name := f"warm {what} {number}")
        await operation(name)
        await after(name)
        await scene.check()
    successes = 0
    more = f" {LONG_TEXT * 40}" if what == "append" else ""  # a short text fits into what SQLite frees
    for left in range(0, MOST * step, step):
        name = f"{what} {left} of {scarce}{more}"
        gc.collect()
        opened = open_descriptors()
        await before(name)
        with SCARCE[scarce](left):
            error = await tried(operation, name, hides)
        if hides and not error:
            scene.said.append(name)
        again = await tried(retry, name, False) if error else ""
        await after(name)
        gc.collect()
        leaked = len(open_descriptors()) - len(opened)
        broken = await scene.check()
        print(
            json.dumps({"left": left, "error": error, "again": again, "leaked": leaked, "broken": broken}),
            flush=True,
        )
        successes = successes + 1 if not error else 0
        if successes == 3:
            break
    await scene.sessions.close()


if __name__ == "__main__":
    place, wanted, scarcity, every, *plant = sys.argv[1:]
    asyncio.run(run(Path(place), wanted, scarcity, int(every), plant == ["hides errors"]))
