"""What the tests of deliveries share: sessions with something to deliver, and engines of all tempers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from turnstate.codec import encode, kind_of
from turnstate.entry import Cut, Entry, Summary
from turnstate.log.records import Ending, Eviction
from turnstate.memory import Evicted, Listed, Recollection, SessionRecord, User, Worker
from turnstate.memory.worker import Delivery
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.stores import connect
from turnstate.stores.port import Store
from turnstate.stores.values import Address, Change, Fork, Parcel, Position, Record, SessionRow
from turnstate.testing.doubles import FixedClock

TIME = "2025-06-15T12:00:00Z"
HERE = Address("default", "s1")


def said(*texts: str, prefix: str = "m") -> list[Message]:
    """Return messages of user and assistant in turn, with the ids m1, m2, …"""
    speak = (Message.user, Message.assistant)
    return [speak[n % 2](text, id=f"{prefix}{n + 1}", timestamp=TIME) for n, text in enumerate(texts)]


def with_output(output: str) -> list[Message]:
    """Return a turn with a tool call and its raw output."""
    call = ToolCallRequest(id="call_1", name="ls", args={})
    return [
        Message.user("What is here?", id="t1", timestamp=TIME),
        Message.assistant(tool_calls=[call], id="t2", timestamp=TIME),
        Message.tool([ToolCallResult(tool_call_id="call_1", result=output)], id="t3", timestamp=TIME),
        Message.assistant("Files.", id="t4", timestamp=TIME),
    ]


def cut(kept_from: str, *, covers: tuple[str, str], summary: str, id: str = "cut1") -> Cut:
    return Cut(id=id, kept_from=kept_from, summary=summary, covers=covers, limit=100, policy="p", counter="c")


def summary(text: str, *, of: str = "cut1") -> Summary:
    return Summary(cut=of, text=text)


def records(entries: Sequence[Entry]) -> tuple[Record, ...]:
    return tuple(
        Record(
            id=entry.id if isinstance(entry, Message) else f"e-{kind_of(entry)}-{number}",
            kind=kind_of(entry),
            body=encode(entry),
        )
        for number, entry in enumerate(entries)
    )


async def begin(
    store: Store, entries: Sequence[Entry], *, at: Address = HERE, user: str | None = "u1"
) -> SessionRow:
    """Keep a session with these entries."""
    row = SessionRow(
        tenant=at.tenant,
        id=at.session,
        user=user,
        title="",
        tags=(),
        counter="c",
        meta={},
        created=1,
        active=1,
    )
    return await store.create(row, records(entries))


async def end(store: Store, *, at: Address = HERE, reason: str = "reset", now: int = 2_000) -> Parcel:
    """Reset a session: the parcel goes in with the change that ends the epoch."""
    row = await store.get(at)
    ending = Ending(
        epoch=row.epoch,
        branch=row.branch,
        seq=row.seq,
        last=f"last-{row.seq}",
        user=row.user,
        reason=reason,
        started=row.created,
        ended=now,
    )
    parcel = ending.parcel(at, due=now)
    new_root = Fork(parent=None, seq=0, operation="reset")
    await store.commit(Change(at=at, now=now, fork=new_root, parcels=(parcel,), next_epoch=True))
    return parcel


async def evict(
    store: Store, first: str, last: str, *, head: Position, summary: str = "", at: Address = HERE
) -> Parcel:
    """Leave a parcel for what a cut took out of the window."""
    row = await store.get(at)
    eviction = Eviction(
        epoch=row.epoch, branch=head.branch, seq=head.seq, cut="cut1", first=first, last=last, summary=summary
    )
    parcel = eviction.parcel(at, due=2_000)
    await store.commit(Change(at=at, now=2_000, parcels=(parcel,)))
    return parcel


def session_record(messages: Sequence[Message], **fields: Any) -> SessionRecord:
    """Return a record as an engine gets it."""
    given: dict[str, Any] = {
        "key": "key1",
        "tenant": "default",
        "session": "s1",
        "user": "u1",
        "epoch": 1,
        "reason": "reset",
        "started": 1_000,
        "ended": 2_000,
        "summary": "",
    }
    return SessionRecord(messages=Listed(messages), **(given | fields))


def evicted(messages: Sequence[Message], **fields: Any) -> Evicted:
    given: dict[str, Any] = {"key": "key0", "tenant": "default", "session": "s1", "user": "u1", "epoch": 1}
    return Evicted(messages=Listed(messages), **(given | fields))


class Notes:
    """An engine that keeps what it is given, each key and each message once, and counts the deliveries."""

    def __init__(self) -> None:
        self.messages: dict[tuple[Address, str], Message] = {}
        self.keys: dict[str, Address] = {}
        self.records: list[SessionRecord] = []
        self.summaries: list[str] = []
        self.deliveries = 0

    async def archive(self, evicted: Evicted, summary: str) -> None:
        self.summaries.append(summary)
        await self._keep(evicted)

    async def ingest(self, record: SessionRecord) -> None:
        self.records.append(record)
        await self._keep(record)

    async def profile(self, user: User) -> str:
        return ""

    async def search(self, user: User, query: str, k: int) -> list[Recollection]:
        return []

    async def forget(self, whose: User | Address) -> int:
        gone = [name for name in self.messages if name[0] == whose]
        for name in gone:
            del self.messages[name]
        return len(gone)

    async def close(self) -> None:
        """Hold nothing."""

    async def _keep(self, handed: Evicted | SessionRecord) -> None:
        self.deliveries += 1
        async for message in handed.messages:
            self.messages.setdefault((handed.address, message.id), message)
        self.keys[handed.key] = handed.address

    @property
    def ids(self) -> list[str]:
        return [id for _, id in self.messages]


class Moody(Notes):
    """An engine that does something else first, or afterwards, as often as it is told."""

    def __init__(
        self,
        *,
        before: Callable[[], Awaitable[None]] | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
        times: int = 1_000,
    ) -> None:
        super().__init__()
        self._before, self._after, self._times = before, after, times

    async def _keep(self, handed: Evicted | SessionRecord) -> None:
        moody, self._times = self._times > 0, self._times - 1
        if moody and self._before:
            await self._before()
        await super()._keep(handed)
        if moody and self._after:
            await self._after()


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


async def never() -> None:
    await asyncio.Event().wait()


class Scene:
    """A store, a clock, and a worker on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = FixedClock(10_000)
        self.told: list[Delivery] = []

    def worker(self, engine: Any, **settings: Any) -> Worker:
        settings.setdefault("clock", self.clock)
        settings.setdefault("random", Random(7))
        return Worker(self.store, engine, on_delivery=self.told.append, **settings)

    @property
    def results(self) -> list[str]:
        return [delivery.result for delivery in self.told]

    def later(self) -> None:
        """Let so much time pass that every claim has run out and every wait is over."""
        self.clock.advance(24 * 3600 * 1000)


STORES = ("memory", "sqlite")


@asynccontextmanager
async def scene(kind: str, folder: Path) -> AsyncIterator[Scene]:
    store = await connect("memory:" if kind == "memory" else f"sqlite:///{folder}/store.db")
    try:
        yield Scene(store)
    finally:
        await store.close()
