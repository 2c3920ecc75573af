"""Appends of one moment share a call to PostgreSQL, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest
from msgspec import structs
from postgres_proxy import Proxy
from postgres_server import executed, fresh_url, local_server

from turnstate.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    EpochEnded,
    Fenced,
    InputError,
    KeyReused,
    NotFound,
    StoreUnavailable,
)
from turnstate.stores import batches
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.connections import Connections
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address, Change, Key, Position, Span
from turnstate.testing.contract.scenes import HERE, change, message, session

SESSIONS = [Address(HERE.tenant, f"s{n}") for n in range(24)]


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_url() as url:
        yield url


@pytest.fixture(autouse=True)
def unindexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index nothing in the background."""
    monkeypatch.setattr(search, "IDLE", 3_600)
    monkeypatch.setattr(search, "BUSY", 3_600)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the statements that write, in their order."""
    names, real = list[str](), Connections.write

    async def write(self: Connections, name: str, /, **given: Any) -> Any:
        names.append(name)
        return await real(self, name, **given)

    monkeypatch.setattr(Connections, "write", write)
    return names


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await connect(url)
    try:
        for at in SESSIONS:
            await store.create(session(at.session))
        yield store
    finally:
        await store.close()


async def ids(store: PostgresStore, at: Address) -> list[str]:
    return [row.id for row in await store.read(at, Span(1, 1, 99))]


@pytest.mark.req("A6", "G5")
def test_appends_of_one_moment_share_a_call_and_each_gets_its_receipt(url: str, calls: list[str]) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            calls.clear()
            changes = [
                change(message(f"{n} {m}"), message(f"{n} {m} more"), at=at, key=Key(f"k{m}", b"1"))
                for m in range(3)
                for n, at in enumerate(SESSIONS)
            ]
            receipts = await asyncio.gather(*map(store.commit, changes))
            sent = [name for name in calls if name.startswith("append")]
            assert len(sent) < len(changes) / 4, sent
            for n, at in enumerate(SESSIONS):
                own = [receipt for receipt, one in zip(receipts, changes, strict=True) if one.at == at]
                assert [(one.version, one.first, one.last) for one in own] == [
                    (1, 1, 2),
                    (2, 3, 4),
                    (3, 5, 6),
                ]
                assert await ids(store, at) == [f"{n} {m}{more}" for m in range(3) for more in ("", " more")]
            again = await asyncio.gather(*map(store.commit, changes))
            assert [structs.replace(one, repeated=False) for one in again] == receipts
            assert all(one.repeated for one in again)
            assert [finding async for finding in store.verify(repair=False)] == []

    asyncio.run(scene())


@pytest.mark.req("A6", "G5")
def test_a_refusal_among_them_is_its_own(url: str, calls: list[str]) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            for at in SESSIONS:
                await store.commit(change(message("first"), at=at, key=Key("used", b"1")))
            await store.acquire(SESSIONS[6], holder="other", until=2**50, now=1)
            refused: list[tuple[Change, type[Exception]]] = [
                (change(message("a"), at=SESSIONS[0], epoch=7), EpochEnded),
                (change(message("a"), at=SESSIONS[1], created=7), EpochEnded),
                (change(message("a"), at=SESSIONS[2], key=Key("used", b"2")), KeyReused),
                (change(message("a"), at=SESSIONS[3], fence=7), Fenced),
                (change(message("a"), at=SESSIONS[4], expected_version=7), Conflict),
                (change(message("a"), at=SESSIONS[5], expected_head=Position(1, 7)), Conflict),
                (change(message("a"), at=SESSIONS[6]), Busy),
                (change(message("a"), at=Address(HERE.tenant, "none")), NotFound),
            ]
            poison: list[tuple[Change, type[Exception]]] = [
                (change(message("first"), at=SESSIONS[7]), AlreadyExists),
                (change(message("a"), message("a"), at=SESSIONS[8]), AlreadyExists),
                (change(message("a\0"), at=SESSIONS[9]), InputError),
            ]
            for number, bad in enumerate((refused, refused + poison)):
                good = [change(message(f"good {number}"), at=at) for at in SESSIONS[12:]]
                jobs = [*good, *(one for one, _ in bad)]
                calls.clear()
                outcomes = await asyncio.gather(*map(store.commit, jobs), return_exceptions=True)
                assert "append_all" in calls
                for outcome in outcomes[: len(good)]:
                    assert not isinstance(outcome, BaseException), outcome
                for (_, error), outcome in zip(bad, outcomes[len(good) :], strict=True):
                    assert type(outcome) is error, (error, outcome)
            for at in SESSIONS[:10]:
                assert await ids(store, at) == ["first"]
            for at in SESSIONS[12:]:
                assert await ids(store, at) == ["first", "good 0", "good 1"]

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_a_session_that_is_locked_holds_up_no_other(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            stranger = await asyncpg.connect(target(url).dsn)
            holding = stranger.transaction()
            await holding.start()
            await stranger.execute(f"SELECT FROM {target(url).schema}.session WHERE id = 's3' FOR UPDATE")
            jobs = {at: asyncio.create_task(store.commit(change(message("a"), at=at))) for at in SESSIONS}
            others = [job for at, job in jobs.items() if at != SESSIONS[3]]
            await asyncio.wait_for(asyncio.gather(*others), 60)
            await asyncio.wait_for(store.commit(change(message("b"), at=SESSIONS[4])), 60)
            assert not jobs[SESSIONS[3]].done()
            await holding.rollback()
            await stranger.close()
            await jobs[SESSIONS[3]]
            assert await ids(store, SESSIONS[3]) == ["a"]

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_an_answer_that_is_lost_is_unknown_to_all_and_a_retry_is_safe() -> None:
    server, schema = local_server(), "lost_together"

    async def scene(folder: Path) -> None:
        async with Proxy(folder, server.folder) as proxy, opened(proxy.url(schema=schema)) as store:
            store._appends.batches._several = True  # so that the first one waits for the others
            await asyncio.gather(*(store.commit(change(message("first"), at=at)) for at in SESSIONS))
            jobs = [change(message("a"), at=at, key=Key("k", b"1")) for at in SESSIONS]
            proxy.lose_next_answer()
            outcomes = await asyncio.gather(*map(store.commit, jobs), return_exceptions=True)
            assert all(isinstance(one, StoreUnavailable) and "unknown" in str(one) for one in outcomes)
            assert len({id(one) for one in outcomes}) == len(SESSIONS)
            again = await asyncio.gather(*map(store.commit, jobs))
            assert all(receipt.repeated and receipt.last == 2 for receipt in again)

    with TemporaryDirectory(prefix="turnstate-") as folder:
        asyncio.run(scene(Path(folder)))
    asyncio.run(executed(f"DROP SCHEMA {schema} CASCADE", url=server.url()))


@pytest.mark.req("G5")
def test_callers_who_give_up_harm_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "TOGETHER", 5)

    async def scene() -> None:
        async with opened(url) as store:
            for turns in range(12):
                jobs = [
                    asyncio.create_task(store.commit(change(message(f"{turns} {n}"), at=at)))
                    for n, at in enumerate(SESSIONS)
                ]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for job in jobs[:: 2 + turns % 3]:
                    job.cancel()
                outcomes = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 60)
                for n, outcome in enumerate(outcomes):
                    if isinstance(outcome, asyncio.CancelledError):
                        assert n % (2 + turns % 3) == 0
                    else:
                        assert not isinstance(outcome, BaseException), outcome
                        assert f"{turns} {n}" in await ids(store, SESSIONS[n])
            assert (store._appends.batches._calls, store._appends.batches._busy) == (0, set())

    asyncio.run(scene())
