"""The memory engine's port: what outlives a session, kept by somebody else.

A session stores no long-term memory; it is the source of it. What a cut takes out of the window goes
to `archive`, what a session was goes to `ingest`, and a new session asks for a `profile`. Both are
delivered at least once, so an engine remembers the ``key`` of what it has taken, and a message by its
session and id: a second delivery, or a message that came before with a cut, changes nothing.

Messages come as an asynchronous iterable that reads the log page by page; it can be walked again, and
a session of 100,000 messages never has to be in memory at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Protocol

from msgspec import Struct

from ..message import Message
from ..stores.values import Address

__all__ = ["Evicted", "Listed", "MemoryEngine", "Recollection", "SessionRecord", "User"]


class User(Struct, frozen=True):
    """Whose memory it is: users of two tenants are two users."""

    tenant: str
    id: str


class _Handed(Struct, frozen=True, kw_only=True):
    key: str
    tenant: str
    session: str
    user: str | None
    epoch: int
    messages: AsyncIterable[Message]

    @property
    def address(self) -> Address:
        """The session that it came from."""
        return Address(self.tenant, self.session)

    @property
    def owner(self) -> User | None:
        """The user whose memory it belongs to; nobody's is kept, and never asked for."""
        return None if self.user is None else User(self.tenant, self.user)


class Evicted(_Handed, frozen=True, kw_only=True):
    """Messages that left the window with a cut, in order, as the log holds them."""


class SessionRecord(_Handed, frozen=True, kw_only=True):
    """All that was said in one epoch of a session: every message once, in order, outputs unshortened.

    ``summary`` is what stood for the evicted messages at the end, empty where nothing was evicted.
    Times are milliseconds since 1970.
    """

    reason: str
    started: int
    ended: int
    summary: str


class Recollection(Struct, frozen=True, kw_only=True):
    """Something that was found, and the message that it came from."""

    text: str
    session: str
    message: str
    timestamp: str
    score: float = 1.0


class MemoryEngine(Protocol):
    """Where long-term memory is kept. An engine does not block the event loop."""

    async def archive(self, evicted: Evicted, summary: str) -> None:
        """Take what left the window, and the text that stands for it there."""
        ...

    async def ingest(self, record: SessionRecord) -> None:
        """Take a session that has ended. What is not kept when this returns is lost."""
        ...

    async def profile(self, user: User) -> str:
        """Say in short what is known of a user; nothing is an empty text."""
        ...

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        """Find at most ``k`` things in the memory of one user, the best first."""
        ...

    async def forget(self, whose: User | Address) -> int:
        """Remove what came from a user or a session for good, and say how many messages that was."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class Listed:
    """Messages that are at hand, in the form in which engines take them."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = tuple(messages)

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in self._messages:
            yield message
