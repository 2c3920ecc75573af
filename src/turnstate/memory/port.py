"""The port of memory engines, which keep what outlives a session in another system.

A session stores no long-term memory; it is the source of it. Messages that a cut removes from the window go
to `archive`, a session that ended goes to `ingest`, and a new session asks for a `profile`. Deliveries are
at least once, so an engine remembers the ``key`` of each delivery and identifies a message by its session
and id: a repeated delivery, or a message that an earlier cut delivered, changes nothing.

Messages are an asynchronous iterable that reads the log page by page. It can be iterated more than once, and
a session of 100,000 messages never has to be in memory as a whole.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from ..errors import InputError
from ..message import Message
from ..stores.values import Address
from ..value import check_kind, check_number
from .facts import Fact


class User(Struct, frozen=True):
    """The owner of a memory; users of different tenants are different users."""

    tenant: str
    id: str


class _Handed(Struct, frozen=True, kw_only=True):
    key: str
    tenant: str
    session: str
    user: str | None
    epoch: int
    messages: AsyncIterable[Message]
    since: int = 0
    """When the session or its epoch began. It is refused if its user or session was forgotten after that."""

    @property
    def address(self) -> Address:
        """The session that the messages came from."""
        return Address(self.tenant, self.session)

    @property
    def owner(self) -> User | None:
        """The user whose memory the messages belong to; None for a session without a user."""
        return None if self.user is None else User(self.tenant, self.user)


class Evicted(_Handed, frozen=True, kw_only=True):
    """Messages that a cut removed from the window, in order, as they are in the log."""


class SessionRecord(_Handed, frozen=True, kw_only=True):
    """All messages of one epoch of a session, each once, in order, with complete outputs.

    ``summary`` is the summary of the evicted messages at the end, empty if nothing was evicted.
    Times are milliseconds since 1970.
    """

    reason: str
    started: int
    ended: int
    summary: str


class Recollection(Struct, frozen=True, kw_only=True):
    """A search result, and the message that it comes from.

    ``score`` is between 0 and 1 and means the same for every question.
    """

    text: str
    session: str
    message: str
    timestamp: str
    role: str = "user"
    score: float = 1.0


class Filter(Struct, frozen=True, kw_only=True):
    """Which results a search may return."""

    roles: tuple[str, ...] = ()
    """Who spoke: ``user``, ``assistant``, ``tool``, ``summary``, ``note``; if it is empty, anyone."""
    session: str | None = None
    since: str = ""
    """The time of the earliest results, in UTC: a date or a time in ISO 8601."""
    until: str = ""
    """The time before which all results are; if it is a date, that day is excluded."""
    min_score: float = 0.0
    """The least score, from 0 to 1."""

    def __post_init__(self) -> None:
        check_kind("Filter.roles", self.roles, tuple)
        for name in ("since", "until"):
            _check_time(f"Filter.{name}", getattr(self, name))
        check_number("Filter.min_score", self.min_score, least=0, most=1)

    def takes(self, hit: Recollection) -> bool:
        """Return True if a search may return the result."""
        return hit.score >= self.min_score and self.takes_turn(hit.session, hit.role, hit.timestamp)

    def takes_turn(self, session: str, role: str, said: str) -> bool:
        """Return True if a search may return a turn, whatever its score is."""
        return (
            (not self.roles or role in self.roles)
            and self.session in (None, session)
            and said >= self.since
            and (not self.until or said < self.until)
        )


def _check_time(name: str, text: object) -> None:
    try:
        if not isinstance(text, str) or (text and not datetime.fromisoformat(text)):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{name} is a date or a time such as 2025-06-15T12:00:00Z, not {text!r:.40}"
        ) from None


class MemoryEngine(Protocol):
    """Keeps long-term memory. An engine must not block the event loop."""

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Store messages that left the window, and their summary."""
        ...

    async def ingest(self, record: SessionRecord) -> None:
        """Store a session that has ended. It must be durable when this returns."""
        ...

    async def profile(self, user: User) -> str:
        """Return a short text about a user, empty if nothing is known."""
        ...

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Return at most ``k`` results from the memory of one user, the best first.

        An engine may also take ``where: Filter | None = None``; if it does not, `search` filters its results.
        """
        ...

    async def forget(self, whose: User | Address) -> int:
        """Permanently remove everything of a user or a session; return the number of messages."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


@runtime_checkable
class TakesNotes(Protocol):
    """An engine that can store notes from outside of a conversation."""

    async def remember(self, user: User, text: str, *, session: str) -> object:
        """Store a note about a user; forgetting the session removes it."""
        ...


@runtime_checkable
class KeepsFacts(Protocol):
    """An engine whose facts can be listed, corrected and forgotten one by one."""

    async def facts(self, user: User, *, as_of: str | None = None) -> list[Fact]:
        """Return all facts of a user, or those that held at a time."""
        ...

    async def update(
        self, user: User, fact: str, *, value: str, text: str = "", until: str | None = None
    ) -> Fact:
        """Change the value of a fact; raise `NotFound` if it does not exist."""
        ...

    async def history(self, user: User, fact: str) -> list[Fact]:
        """Return what a fact took the place of, the fact, and what took its place, in order."""
        ...

    async def drop(self, user: User, fact: str, *, history: bool = False) -> bool:
        """Permanently remove one fact; return False if it does not exist."""
        ...


@runtime_checkable
class Scrubs(Protocol):
    """An engine that overwrites the remains of what it has forgotten, and can say whether any are left."""

    async def scrub(self) -> bool:
        """Overwrite the remains in the engine's files; return True if none are left."""
        ...


class Listed:
    """Messages from a list, in the form that engines take."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = tuple(messages)

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in self._messages:
            yield message


FILTERED_FROM = 5
"""How many times more results an engine without filters is asked for."""


async def search(
    engine: MemoryEngine, user: User, query: str, k: int, where: Filter | None = None
) -> list[Recollection]:
    """Search an engine, and filter the results of one that does not do it itself."""
    if where is None or where == Filter():
        return await engine.search(user, query, k)
    if "where" in inspect.signature(engine.search).parameters:
        filtering: Any = engine.search
        found: list[Recollection] = await filtering(user, query, k, where=where)
    else:
        is_wider = where != Filter(min_score=where.min_score)  # a score leaves out the last results only
        found = await engine.search(user, query, k * FILTERED_FROM if is_wider else k)
    return [hit for hit in found if where.takes(hit)][:k]


def mark_of(whose: User | Address) -> bytes:
    """Return the hash that identifies a user or a session after it was forgotten."""
    kind, name = ("user", whose.id) if isinstance(whose, User) else ("session", whose.session)
    return _mark(kind, whose.tenant, name)


def mark_of_fact(user: User, fact: str) -> bytes:
    """Return the hash that identifies a fact of a user after it was forgotten."""
    return _mark("fact", user.tenant, user.id, fact)


def _mark(*names: str) -> bytes:
    content = "\0".join(["turnstate memory", *names])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()
