"""What a server's store reads ahead of a session is what single reads return, and saves these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.thoroughness import rng
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate import Budget, Message, SessionManager
from turnstate.errors import NotFound
from turnstate.stores import postgres, redis
from turnstate.stores.port import ReadsAhead, Store
from turnstate.stores.postgres import store as postgres_store
from turnstate.stores.redis import log as redis_log
from turnstate.stores.values import Address, Fork, Span
from turnstate.testing.contract.scenes import HERE, change, message, note, session

KINDS = ("a", "b", "c")
STORES = (postgres.PostgresStore, redis.RedisStore)


@pytest.fixture(params=["postgres", "valkey", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_url() as url:
            yield url
    else:
        yield fresh_server() if request.param == "valkey" else fresh_cluster()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is read from stores, in its order."""
    names = list[str]()

    def watch(kind: type[Any], name: str) -> None:
        real = getattr(kind, name)

        async def read(*given: Any, **how: Any) -> Any:
            names.append(name)
            return await real(*given, **how)

        monkeypatch.setattr(kind, name, read)

    for kind in STORES:
        for name in ("get", "ahead", "read", "find", "newest", "branches"):
            watch(kind, name)
    return names


def run(url: str, scene: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def opened() -> None:
        store: Store = await (postgres if url.startswith("postgres") else redis).connect(url)
        try:
            await scene(store)
        finally:
            await store.close()

    asyncio.run(opened())


async def compared(store: Store, reads: list[str]) -> int:
    """Read at random, ahead and from the store; return how many of 600 reads needed the store."""
    assert isinstance(store, ReadsAhead)
    random, asked = rng("ahead"), 0
    row, known = await store.ahead(HERE, KINDS)
    assert row == await store.get(HERE)
    every = await store.read(HERE, Span(row.branch, 1, 999))
    for _ in range(200):
        first = random.randrange(-1, row.seq + 3)
        branch, last = random.choice((1, row.branch, row.branch)), random.randrange(first - 1, row.seq + 9)
        span = Span(branch, first, last)
        how: dict[str, Any] = {"limit": random.choice((None, 1, 3, 9)), "newest": random.random() < 0.5}
        ids = [one.id for one in random.sample(every, min(2, len(every)))]
        path = random.choice(([Span(row.branch, 1, row.seq)], [span]))
        kinds = random.choice((KINDS, KINDS[:1], ("b", "other")))
        reads.clear()
        found = await known.read(HERE, span, **how)
        by_id = await known.find(HERE, ids)
        marks = await known.newest(HERE, path, kinds)
        asked += len(reads)
        assert found == await store.read(HERE, span, **how), (span, how)
        assert by_id == await store.find(HERE, ids)
        assert marks == await store.newest(HERE, path, kinds)
    assert await known.branches(HERE) == await store.branches(HERE)
    return asked


def test_reads_ahead_are_those_of_the_store(
    url: str, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(store: Store) -> None:
        random = rng("rows")
        await store.create(session())
        empty = await compared(store, reads)
        for n in range(70):
            kind = random.choice(("message", "message", *KINDS))
            await store.commit(change(message(f"m{n}") if kind == "message" else note(f"m{n}", kind=kind)))
        much = await compared(store, reads)
        for where in (postgres_store, redis_log):
            monkeypatch.setattr(where, "NEWEST_BYTES", 1)
        little = await compared(store, reads)
        assert empty < much < little < 600
        await store.commit(change(message("f"), fork=Fork(parent=1, seq=30, operation="fork")))
        await compared(store, reads)
        await store.commit(change(fork=Fork(parent=None, seq=0, operation="clear")))
        await compared(store, reads)

    run(url, scene)


def test_a_session_that_does_not_exist_is_not_found(url: str) -> None:
    async def scene(store: Store) -> None:
        assert isinstance(store, ReadsAhead)
        with pytest.raises(NotFound):
            await store.ahead(Address(HERE.tenant, "none"), KINDS)

    run(url, scene)


def test_a_session_and_its_window_are_two_round_trips(url: str, reads: list[str]) -> None:
    async def scene(store: Store) -> None:
        sessions = SessionManager(store)
        session = await sessions.create(user="u", system="You keep a lighthouse.")
        for night in range(60):
            await session.append(Message.user(f"Night {night}?"), Message.assistant("It is lit. " * 40))
        made = await session.window(Budget(4_000))
        assert made.decisions
        reads.clear()
        again = await sessions.open(session.id, user="u")
        assert (await again.window(Budget(4_000))).messages == made.messages
        assert reads == ["get", "ahead"]

    run(url, scene)
