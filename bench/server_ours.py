"""Turnstate as a contestant on a server: one open store, as in a worker, and sessions opened from it.

Words for search are indexed while nothing is written. A benchmark stops the event loop between turns, so a
search that finds nothing indexes the rest of a turn before the next one; that time is added up separately.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from turnstate import Budget, Session, SessionManager
from turnstate.entry import Cut

from .server_contest import session_name, settings_text
from .session_clock import timed, together
from .session_contest import Place, Portion
from .session_messages import Book
from .session_ours import filled


class ServerOurs:
    """Sessions of Turnstate on a server, all on one event loop."""

    name = "Turnstate"

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._manager = self._runner.run(_opened(url))
        self._sessions = dict[Place, Session]()
        self._facts = self._runner.run(self._manager.store.facts())
        self.indexing = 0.0  # seconds

    @property
    def settings(self) -> str:
        """The durability of a write, as the server and as the store report it."""
        return f"{settings_text(self._facts)} ({self._manager.store.durability})"

    def fill(self, place: Place, book: Book, span: range) -> None:
        """Write many messages in large batches."""
        self._runner.run(filled(self._session(place), book.messages[span.start : span.stop]))

    def append(self, place: Place, book: Book, span: range, *, seconds: float = math.inf) -> list[float]:
        """Write messages one by one until the time is up, at least one; return the time of each."""
        messages, session = book.messages[span.start : span.stop], self._session(place)
        self._catch_up()
        return self._runner.run(timed(messages, session.append, seconds))

    def read(self, place: Place, portion: Portion) -> float:
        """Reopen a session in the open store and build its window; return the total time."""
        return self._runner.run(self._read(place, Budget(portion.budget)))

    def window(self, place: Place, budget: int) -> tuple[int, bool]:
        """Build a window; return its number of messages, and whether a cut was made and recorded."""
        window = self._runner.run(self._session(place).window(Budget(budget)))
        return len(window.messages), any(isinstance(one, Cut) for one in window.applied)

    def clients(self, places: Sequence[Place], book: Book) -> float:
        """Let all clients concurrently write their part of a book to their session; return the time."""
        sessions = [self._session(place) for place in places]
        self._catch_up()
        return self._runner.run(together(book.messages, [session.append for session in sessions]))

    def close(self, file: str) -> None:
        """Close the sessions of one file name."""
        self._sessions = {place: one for place, one in self._sessions.items() if place.file != file}

    def end(self) -> None:
        """Release everything."""
        self._runner.run(self._manager.close())
        self._runner.close()

    def _catch_up(self) -> None:
        """Index what was written before."""
        start = time.perf_counter()
        search = self._manager.store.search("default", ["zzzz"], user=None, before=None, limit=1)
        self._runner.run(search)
        self.indexing += time.perf_counter() - start

    def _session(self, place: Place) -> Session:
        if place not in self._sessions:
            created = self._manager.create(user="u", id=session_name(place))
            self._sessions[place] = self._runner.run(created)
        return self._sessions[place]

    async def _read(self, place: Place, budget: Budget) -> float:
        start = time.perf_counter()
        session = await self._manager.open(session_name(place))
        await session.window(budget)
        return time.perf_counter() - start


async def _opened(url: str) -> SessionManager:
    return await SessionManager.open(url)
