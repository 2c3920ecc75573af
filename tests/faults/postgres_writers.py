"""Writers that retry: tasks that repeat each append under its key until it is acknowledged.

That is what a careful caller does when a store cannot say whether an append was written. The only error
that a failing server may cause is `StoreUnavailable`: any other error ends the writers, and so does a hang.
The other modes are planted bugs that the checks have to catch.

    python -m tests.faults.postgres_writers URL MODE NAME SESSION...   # prints each append, sent and kept
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from enum import StrEnum
from typing import Any, TypeVar

from tests.faults.fork_server import Reply
from tests.faults.promises import Promises, texts
from turnstate import Message
from turnstate.errors import StoreUnavailable
from turnstate.session.manager import SessionManager
from turnstate.session.session import Session

USER = "u1"
SIZE = 2  # messages in an append: a part of one would show
PAUSE = 0.05  # seconds until an append is repeated
HANG = 120.0  # seconds without an answer or an error: more than all the patience of the store

T = TypeVar("T")


class Mode(StrEnum):
    """How the writers repeat an append."""

    CAREFUL = "careful"
    KEYLESS = "keyless"  # repeats without a key
    HASTY = "hasty"  # acknowledges first, and does not repeat


class Writers:
    """Tasks that append, and the answers they got."""

    def __init__(self, promises: Promises, mode: Mode = Mode.CAREFUL) -> None:
        self.promises, self.mode = promises, mode
        self.repeated, self.failed, self.reads = 0, 0, 0
        self.doubted = set[str]()  # appends that failed at least once
        self.longest = 0.0

    async def write(self, session: Session, names: Iterable[str]) -> None:
        """Append one after the other, each until it is acknowledged."""
        for name in names:
            self.promises.ask(name, SIZE)
            if self.mode == Mode.HASTY:
                self.promises.hear([{"ack": name}])
            while not await self._is_kept(session, name):
                await asyncio.sleep(PAUSE)
            self.promises.hear([{"ack": name}])

    async def read(self, session: Session, is_over: Callable[[], bool]) -> None:
        """Read the end of a session repeatedly until the test is over."""
        while not is_over():
            self.reads += await self._answer(session.messages(last=1)) is not None
            await asyncio.sleep(PAUSE)

    async def heard_more(self, count: int) -> None:
        """Wait for some acknowledgements."""
        enough = len(self.promises.acked) + count
        async with asyncio.timeout(HANG):
            while len(self.promises.acked) < enough:
                await asyncio.sleep(0.001)

    async def _is_kept(self, session: Session, name: str) -> bool:
        """Try an append once; return True if it was acknowledged."""
        key = None if self.mode == Mode.KEYLESS else name
        receipt = await self._answer(session.append(*map(Message.user, texts(name, SIZE)), key=key))
        if receipt is None:
            self.doubted.add(name)
            return self.mode == Mode.HASTY
        self.repeated += receipt.repeated
        return True

    async def _answer(self, asked: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer of the store, or None if it is unavailable."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(HANG):
                return await asked
        except StoreUnavailable:
            self.failed += 1
            return None
        finally:
            self.longest = max(self.longest, time.monotonic() - started)


def numbered(prefix: str, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield names of appends until the test is over."""
    number = 0
    while not is_over():
        yield f"{prefix}-{number}"
        number += 1


class PrintedPromises(Promises):
    """Promises that are printed for the process that started this one."""

    def ask(self, name: str, size: int = 1) -> str:
        """Print that an append is about to be tried."""
        print(json.dumps({"ask": name}), flush=True)
        return name

    def hear(self, replies: Iterable[Reply]) -> None:
        """Print what was acknowledged."""
        for reply in replies:
            print(json.dumps(reply), flush=True)


async def _live(url: str, mode: str, name: str, *ids: str) -> None:
    """Append to sessions, with a task for each, until the input is closed."""
    writers, over = Writers(PrintedPromises(), Mode(mode)), threading.Event()
    threading.Thread(target=lambda: os.read(0, 1) or over.set(), daemon=True).start()
    async with await SessionManager.open(url) as sessions:
        handles = [await sessions.open(id, user=USER) for id in ids]
        print(json.dumps({"ready": True}), flush=True)
        names = (numbered(f"{name}.{lane}", over.is_set) for lane in range(len(ids)))
        await asyncio.gather(*map(writers.write, handles, names))
    print(json.dumps({"done": True, "repeated": writers.repeated, "failed": writers.failed}), flush=True)


if __name__ == "__main__":
    asyncio.run(_live(*sys.argv[1:]))
