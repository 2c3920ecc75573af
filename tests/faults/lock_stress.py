"""Work on one file in a process that drops its locks: a thread opens and closes every file of the folder.

Every append is told before it is tried (`ask`) and after it was acknowledged (`ack`). What this process was
promised must be in everything that it reads later; if it is not, that is told, too (`wrong`).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Protocol

from tests.faults.promises import Promises, texts
from turnstate import Message
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import BuiltinEngine, connect
from turnstate.session.manager import SessionManager
from turnstate.stores.sqlite import SqliteStore, connection, writer

USER = "u1"
TIME = "2025-06-15T12:00:00Z"
WAL_PAGES = 60  # so that the WAL is carried over and started over all the time

Say = Callable[..., Awaitable[None]]


def drop_locks(folder: Path, random: Random) -> None:
    """Open and close every file of a folder, as a search through it does, until the process ends."""

    def run() -> None:
        while True:
            touch_all(folder)
            time.sleep(random.choice([0, 0.0005, 0.005, 0.05]))

    threading.Thread(target=run, daemon=True).start()


def touch_all(folder: Path) -> None:
    """Open and close every file of a folder."""
    for name in os.listdir(folder):
        with suppress(OSError):
            os.close(os.open(folder / name, os.O_RDONLY))


class Work(Protocol):
    """One kind of file: what is written to it, and what is found in it."""

    async def open(self) -> None: ...

    async def write(self, name: str, size: int) -> None: ...

    async def wrong(self, promises: Promises) -> list[str]: ...

    async def close(self) -> None: ...


class Sessions:
    """One session, to which all processes append."""

    def __init__(self, path: str, session: str) -> None:
        self._path, self._id = path, session

    async def open(self) -> None:
        self._store = await asyncio.to_thread(SqliteStore, self._path)
        self._sessions = SessionManager(self._store)
        self._session = await self._sessions.open(self._id, user=USER)

    async def write(self, name: str, size: int) -> None:
        await self._session.append(*map(Message.user, texts(name, size)), key=name)

    async def wrong(self, promises: Promises) -> list[str]:
        session = await self._sessions.open(self._id, user=USER)
        found = [str(message.text) for message in await session.messages()]
        return [one for one in promises.broken_by(found) if not one.startswith("never asked")] + [
            f"damaged: {notice}" for notice in session.notices if notice not in self._store.notices
        ]

    async def close(self) -> None:
        await self._sessions.close()


class Memory:
    """A memory, to which all processes deliver."""

    def __init__(self, path: str, user: str, random: Random) -> None:
        self._path, self._user, self._random = path, user, random
        self._engine: BuiltinEngine

    async def open(self) -> None:
        self._engine = await connect(self._path)

    async def write(self, name: str, size: int) -> None:
        said = [Message.user(word(name), id=text, timestamp=TIME) for text in texts(name, size)]
        await self._engine.ingest(
            SessionRecord(
                key=name,
                messages=Listed(said),
                reason="end",
                started=1,
                ended=2,
                summary="",
                tenant="t",
                session=name,
                user=self._user,
                epoch=1,
                since=1,
            )
        )

    async def wrong(self, promises: Promises) -> list[str]:
        some = self._random.sample(promises.acked, min(3, len(promises.acked)))
        return [
            f"lost: {name}"
            for name in some
            if not await self._engine.search(User("t", self._user), word(name), 5)
        ]

    async def close(self) -> None:
        await self._engine.close()


def word(name: str) -> str:
    """Return a word that only one delivery contains."""
    return "boat" + name.replace("-", "x").replace(".", "y")


async def work(
    kind: Work, prefix: str, random: Random, say: Say, is_told_to_stop: Callable[[], bool]
) -> None:
    """Open, write, read and close, again and again."""
    connection.WAL_PAGES = writer.WAL_PAGES = WAL_PAGES
    promises, number = Promises(), 0
    telling = asyncio.Lock()  # two tasks cannot wait for one socket

    async def tell(**reply: object) -> None:
        async with telling:
            await say(**reply)

    async def write(name: str) -> None:
        size = random.choice([1, 2, 3, 30])
        await tell(ask=promises.ask(name, size), size=size)
        await kind.write(name, size)
        await tell(ack=name)
        promises.hear([{"ack": name}])

    while not is_told_to_stop():
        await kind.open()
        for _ in range(random.randrange(1, 12)):
            names = [f"{prefix}-{number + one}" for one in range(random.choice([1, 1, 1, 4]))]
            number += len(names)
            await asyncio.gather(*map(write, names))
            if random.random() < 0.3:
                for wrong in await kind.wrong(promises):
                    await tell(wrong=wrong)
        await kind.close()
    await tell(done=True)
