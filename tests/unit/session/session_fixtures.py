"""What the tests of sessions share: a store with a fixed clock, managers on it, and short messages.

A test is a coroutine that takes a harness; `run` makes it a plain function. The managers of a harness share
one store, as workers do, and are closed when the test ends.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from turnstate.codec import decode_entry
from turnstate.context.window import Window
from turnstate.entry import Cut, Decision, Entry
from turnstate.log.path import path_to
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.session import Session, SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store
from turnstate.stores.values import Parcel, Row, Span
from turnstate.testing import FixedClock

END = 2**31 - 1


class Harness:
    """A store of one kind, and as many managers on it as a test wants."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.clock = kind, folder, FixedClock()
        self.path = folder / "agent.db"
        self._memory = MemoryStore()
        self._open = AsyncExitStack()

    async def manager(self, **settings: Any) -> SessionManager:
        settings = {"clock": self.clock} | settings
        if self.kind == "memory":
            return SessionManager(self._memory, **settings)
        return await self._open.enter_async_context(
            await SessionManager.open(f"sqlite:///{self.path}", **settings)
        )

    async def close(self) -> None:
        await self._open.aclose()


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that runs a coroutine with a harness, and closes it."""

    @functools.wraps(test)
    def runner(harness: Harness, **others: Any) -> None:
        async def closing() -> None:
            try:
                await test(harness, **others)
            finally:
                await harness.close()

        asyncio.run(closing())

    return runner


def call(name: str = "ls", provider_id: str | None = None, **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args, provider_id=provider_id)


def asks(*calls: ToolCallRequest) -> Message:
    return Message.assistant(tool_calls=calls)


def answer(call: ToolCallRequest | str, result: Any = "done", *, is_error: bool = False) -> ToolCallResult:
    id = call if isinstance(call, str) else call.id
    return ToolCallResult(tool_call_id=id, result=result, is_error=is_error)


def answers(*results: ToolCallResult) -> Message:
    return Message.tool(results)


async def texts(session: Session) -> list[str]:
    """Return the texts of the messages on the path; a message without text is its role."""
    return [message.text or message.role for message in await session.messages()]


async def rows(session: Session) -> list[Row]:
    """Return the rows on the path."""
    store, row = session._writer.store, await session._writer.store.get(session._row.address)
    path = await path_to(store, row.address, row.head)
    return [one for span in reversed(path) for one in await store.read(row.address, span)]


async def entries(session: Session) -> list[Entry]:
    return [decode_entry(row.kind, row.body) for row in await rows(session)]


async def decisions(session: Session) -> list[Decision]:
    return [entry for entry in await entries(session) if isinstance(entry, Decision)]


async def cuts(session: Session) -> list[Cut]:
    return [entry for entry in await entries(session) if isinstance(entry, Cut)]


async def parcels(store: Store, kind: str = "ingest") -> list[Parcel]:
    return [parcel for parcel in await store.parcels(limit=10_000) if parcel.kind == kind]


async def everything(session: Session) -> object:
    """Return everything that a store holds of a session, to see that nothing has changed."""
    store, at = session._writer.store, session._row.address
    branches = await store.branches(at)
    logs = [await store.read(at, Span(branch.id, 1, END)) for branch in branches]
    return await store.get(at), branches, logs, await store.parcels(limit=10_000)


async def grown(session: Session, turns: int, words: int = 40) -> list[Message]:
    """Append some turns of user and assistant."""
    said = list[Message]()
    for number in range(turns):
        said += [Message.user(f"question {number} " + "word " * words), Message.assistant(f"answer {number}")]
    for start in range(0, len(said), 20):
        await session.append(*said[start : start + 20])
    return said


def prompt(window: Window) -> str | None:
    """Return the system prompt of a window."""
    return next((message.text for message in window.messages if message.kind == "prompt"), None)


async def say(session: Session, *words: str) -> None:
    """Append user messages, each with its text as its id."""
    for word in words:
        await session.append(Message.user(word, id=word))
