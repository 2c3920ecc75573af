"""Turnstate as a contestant: sessions in SQLite files, used as a program would use them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path

from turnstate import Budget, Message, Session, SessionManager
from turnstate.entry import Cut

from .session_clock import timed, together, waits
from .session_contest import Place, Portion, Settings
from .session_messages import Book

FILLED_AT_ONCE = 1_000
WHOLE = Budget(1_000_000)


class Ours:
    """Sessions of Turnstate, all on one event loop."""

    name = "Turnstate"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runner = asyncio.Runner()
        self._managers = dict[str, SessionManager]()
        self._sessions = dict[Place, Session]()
        self.settings = self._runner.run(self._settings())

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in large batches."""
        self._runner.run(self._fill(place, book.messages[span.start : span.stop]))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        return self._runner.run(self._append(place, book.messages[span.start : span.stop], seconds))

    def read(self, place: Place, portion: Portion) -> float:
        """Open the store and the session in it, and build its window; return the total time."""
        return self._runner.run(self._read(place, Budget(portion.budget)))

    def newest(self, place: Place, count: int) -> float:
        """Read the last messages of an open session; return the time."""
        return self._runner.run(self._newest(place, count))

    def opened_window(self, place: Place) -> float:
        """Open a session in the open store and build a window of all of it; return the time."""
        return self._runner.run(self._opened_window(place))

    def window(self, place: Place, budget: int) -> tuple[int, bool]:
        """Build a window; return its number of messages, and whether a cut was made and recorded."""
        return self._runner.run(self._window(place, Budget(budget)))

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book to their session; return the time."""
        return self._runner.run(self._clients(places, book.messages))

    def waits(self, places: Sequence[Place], book: Book) -> list[float]:
        """Do the same as `clients`; return how long each message took to be acknowledged."""
        return self._runner.run(self._waits(places, book.messages))

    def catch_up(self, file: str) -> float:
        """Let the search index catch up with what was written; return the time."""
        return self._runner.run(self._catch_up(file))

    def close(self, file: str) -> None:
        """Close a file."""
        self._sessions = {place: one for place, one in self._sessions.items() if place.file != file}
        if manager := self._managers.pop(file, None):
            self._runner.run(manager.close())

    def end(self) -> None:
        """Release everything."""
        for file in list(self._managers):
            self.close(file)
        self._runner.close()

    async def _settings(self) -> Settings:
        async with await self._opened("settings") as sessions:
            facts = await sessions.store.facts()
        return Settings(facts["journal_mode"], facts["synchronous"], facts["sqlite"])

    async def _fill(self, place: Place, messages: list[Message]) -> None:
        await filled(await self._session(place), messages)

    async def _append(self, place: Place, messages: list[Message], seconds: float) -> list[float]:
        return await timed(messages, (await self._session(place)).append, seconds)

    async def _read(self, place: Place, budget: Budget) -> float:
        start = time.perf_counter()
        sessions = await self._opened(place.file)
        session = await sessions.open(place.session)
        await session.window(budget)
        spent = time.perf_counter() - start
        await sessions.close()
        return spent

    async def _newest(self, place: Place, count: int) -> float:
        session = await self._session(place)
        start = time.perf_counter()
        await session.messages(last=count)
        return time.perf_counter() - start

    async def _opened_window(self, place: Place) -> float:
        start = time.perf_counter()
        session = await self._managers[place.file].open(place.session)
        await session.window(WHOLE)
        return time.perf_counter() - start

    async def _window(self, place: Place, budget: Budget) -> tuple[int, bool]:
        window = await (await self._session(place)).window(budget)
        return len(window.messages), any(isinstance(one, Cut) for one in window.applied)

    async def _clients(self, places: Sequence[Place], messages: list[Message]) -> float:
        return await together(messages, [(await self._session(place)).append for place in places])

    async def _waits(self, places: Sequence[Place], messages: list[Message]) -> list[float]:
        return await waits(messages, [(await self._session(place)).append for place in places])

    async def _catch_up(self, file: str) -> float:
        start = time.perf_counter()
        await self._managers[file].store.search("default", ["x"], user=None, before=None, limit=1)
        return time.perf_counter() - start

    async def _session(self, place: Place) -> Session:
        if place not in self._sessions:
            if place.file not in self._managers:
                self._managers[place.file] = await self._opened(place.file)
            self._sessions[place] = await self._managers[place.file].create(user="u", id=place.session)
        return self._sessions[place]

    async def _opened(self, file: str) -> SessionManager:
        return await SessionManager.open(f"sqlite:///{self.folder / file}")


async def filled(session: Session, messages: Sequence[Message]) -> None:
    """Append many messages, a thousand at a time."""
    for start in range(0, len(messages), FILLED_AT_ONCE):
        await session.append(*messages[start : start + FILLED_AT_ONCE])
