"""Helpers for the contract tests: a store for each test, small values, and assertions.

A test is a coroutine that gets an empty store; `scenario` turns it into a plain method, so that pytest and
unittest run it without a plugin. Assertions have their own messages, since pytest does not rewrite the
assertions of an installed package.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ...codec import encode
from ...entry import Note
from ...ids import UNKNOWN_TIME
from ...message import Message
from ...stores.port import Store
from ...stores.values import MESSAGE, Address, Change, Parcel, Position, Record, Row, SessionRow, Span

NOW = 1_750_000_000_000
HERE = Address("acme", "s1")
END = 2**31 - 1
"""A sequence number after the last entry of any branch that a test creates."""

BODY = encode(Message.user("x", id="x", timestamp=UNKNOWN_TIME))
"""The body of a message that verification can decode."""

NOTE = encode(Note("x"))
"""The body of a note."""

S = TypeVar("S", bound="Scene")


class Scene:
    """Provides the stores of the tests; a subclass opens them."""

    async def connect(self) -> Store:
        """Open an empty store; if a test calls this again, open the same store again."""
        raise NotImplementedError("give your contract a connect() that opens your store")


def scenario(body: Callable[[S, Store], Coroutine[Any, Any, None]]) -> Callable[[S], None]:
    """Return a test that runs a coroutine on an empty store and closes it."""

    async def run(scene: S) -> None:
        store = await scene.connect()
        try:
            await body(scene, store)
        finally:
            await store.close()

    def test(self: S) -> None:
        asyncio.run(run(self))

    # Not functools.wraps: pytest would look through it and take the store for a fixture.
    test.__name__, test.__qualname__ = body.__name__, body.__qualname__
    test.__module__, test.__doc__ = body.__module__, body.__doc__
    return test


def session(id: str = HERE.session, **fields: Any) -> SessionRow:
    """Return a new session."""
    given: dict[str, Any] = {
        "tenant": HERE.tenant,
        "user": None,
        "title": "",
        "tags": (),
        "counter": "o200k_base",
        "meta": {},
    }
    return SessionRow(**{**given, "created": NOW, "active": NOW, **fields, "id": id})


def message(id: str, *, tokens: int = 1, words: Sequence[str] = (), body: bytes = BODY) -> Record:
    """Return an entry that is a message; ``words`` become its text."""
    if words:
        body = encode(Message.user(" ".join(words), id="x", timestamp=UNKNOWN_TIME))
    return Record(id=id, kind=MESSAGE, body=body, tokens=tokens)


def note(id: str, *, kind: str = "note", tokens: int = 0) -> Record:
    """Return an entry that is not a message."""
    return Record(id=id, kind=kind, body=NOTE, tokens=tokens)


def change(*records: Record, at: Address = HERE, now: int = NOW, **asked: Any) -> Change:
    """Return a change that appends records."""
    return Change(at=at, now=now, records=records, **asked)


def parcel(id: str, *, at: Address = HERE, due: int = NOW, body: bytes = b"{}") -> Parcel:
    """Return a parcel of a session."""
    return Parcel(id=id, tenant=at.tenant, session=at.session, kind="ingest", body=body, due=due)


async def dump(store: Store, at: Address = HERE) -> list[Any]:
    """Return everything that a store returns for a session."""
    branches = await store.branches(at)
    rows = [await store.read(at, Span(branch.id, 1, END)) for branch in branches]
    waiting = await store.parcels(tenant=at.tenant, limit=END)
    return [await store.get(at), branches, rows, [one for one in waiting if one.session == at.session]]


async def path(store: Store, head: Position, at: Address = HERE) -> list[Row]:
    """Return the entries from the root to a head, over all forks."""
    branches = {branch.id: branch for branch in await store.branches(at)}
    rows, (at_branch, last) = list[Row](), head
    while True:
        branch = branches[at_branch]
        rows = await store.read(at, Span(branch.id, branch.fork_seq + 1, last)) + rows
        if branch.parent is None:
            return rows
        at_branch, last = branch.parent, min(last, branch.fork_seq)


def equal(found: object, wanted: object, claim: str) -> None:
    """Assert that two values are equal."""
    if found != wanted:
        raise AssertionError(f"{claim}: found {found!r:.600}, expected {wanted!r:.600}")


def holds(truth: object, claim: str) -> None:
    """Assert that something is true."""
    if not truth:
        raise AssertionError(claim)


@contextmanager
def refused(*kinds: type[Exception], claim: str = "") -> Iterator[list[Exception]]:
    """Assert that the block raises one of these errors, and add it to the list that is yielded."""
    names, errors = " or ".join(kind.__name__ for kind in kinds), list[Exception]()
    try:
        yield errors
    except kinds as error:
        errors.append(error)
    except Exception as error:
        raise AssertionError(f"{claim or 'refusal'}: {names} expected, {error!r:.300} raised") from error
    else:
        raise AssertionError(f"{claim or 'refusal'}: {names} expected, nothing raised")


@asynccontextmanager
async def unchanged(store: Store, at: Address = HERE) -> AsyncIterator[None]:
    """Assert that the block leaves a session unchanged."""
    before = await dump(store, at)
    yield
    equal(await dump(store, at), before, f"session {at.session} must not have changed")
