"""Appends of one moment share a pipeline to the server, and each gets its own answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.harness.redis_proxy import Proxy
from tests.harness.thoroughness import rng
from tests.harness.valkey_server import empty_server, fresh_cluster, fresh_server
from turnstate.errors import AlreadyExists, Busy, Conflict, EpochEnded, Fenced, KeyReused, NotFound
from turnstate.stores.redis import RedisStore, connect
from turnstate.stores.redis.server import Server
from turnstate.stores.values import Address, Change, Key, Position, Receipt, Span
from turnstate.testing.contract.scenes import HERE, change, message, session

SESSIONS = [Address(HERE.tenant, f"s{n}") for n in range(24)]


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many changes each pipeline had."""
    sizes, real = list[int](), Server.run_each

    async def run_each(self: Server, script: Any, calls: Any, **how: Any) -> list[Any]:
        sizes.append(len(calls))
        return await real(self, script, calls, **how)

    monkeypatch.setattr(Server, "run_each", run_each)
    return sizes


async def opened(url: str) -> RedisStore:
    store = await connect(url)
    for at in SESSIONS:
        await store.create(session(at.session))
    return store


async def ids(store: RedisStore, at: Address) -> list[str]:
    return [row.id for row in await store.read(at, Span(1, 1, 99))]


def changes(count: int) -> list[Change]:
    return [
        change(message(f"{n} {m}"), at=at, key=Key(f"k{m}", b"1"))
        for m in range(count)
        for n, at in enumerate(SESSIONS)
    ]


async def check_all_written(store: RedisStore, receipts: list[Receipt]) -> None:
    """Check that three changes of every session were written in order, and answered."""
    for n, at in enumerate(SESSIONS):
        assert [(one.version, one.last) for one in receipts[n :: len(SESSIONS)]] == [(1, 1), (2, 2), (3, 3)]
        assert await ids(store, at) == [f"{n} {m}" for m in range(3)]
    assert [finding async for finding in store.verify(repair=False)] == []


@pytest.mark.req("A6", "G5")
def test_appends_of_one_moment_share_a_pipeline_and_each_gets_its_receipt(pipelines: list[int]) -> None:
    async def scene() -> None:
        store = await opened(fresh_server())
        await store._server.ask("SCRIPT", "FLUSH")  # the first pipeline is not taken, as by a new server
        receipts = await asyncio.gather(*map(store.commit, changes(3)))
        assert sum(pipelines) > 48
        assert len(pipelines) < 12
        await check_all_written(store, receipts)
        again = await asyncio.gather(*map(store.commit, changes(3)))
        assert [structs.replace(one, repeated=False) for one in again] == receipts
        await store.close()

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_on_a_cluster_each_is_sent_alone(pipelines: list[int]) -> None:
    async def scene() -> None:
        store = await opened(fresh_cluster())
        made = changes(3)
        receipts = list[Receipt]()
        for start in range(0, len(made), len(SESSIONS)):
            receipts += await asyncio.gather(*map(store.commit, made[start : start + len(SESSIONS)]))
        assert pipelines == []
        await check_all_written(store, receipts)
        await store.close()

    asyncio.run(scene())


@pytest.mark.req("A6", "G5")
def test_a_refusal_among_them_is_its_own(pipelines: list[int]) -> None:
    async def scene() -> None:
        store = await opened(fresh_server())
        await asyncio.gather(
            *(store.commit(change(message("first"), at=at, key=Key("used", b"1"))) for at in SESSIONS)
        )
        await store.acquire(SESSIONS[6], holder="other", until=2**50, now=1)
        bad: list[tuple[Change, type[Exception]]] = [
            (change(message("a"), at=SESSIONS[0], epoch=7), EpochEnded),
            (change(message("a"), at=SESSIONS[1], created=7), EpochEnded),
            (change(message("a"), at=SESSIONS[2], key=Key("used", b"2")), KeyReused),
            (change(message("a"), at=SESSIONS[3], fence=7), Fenced),
            (change(message("a"), at=SESSIONS[4], expected_version=7), Conflict),
            (change(message("a"), at=SESSIONS[5], expected_head=Position(1, 7)), Conflict),
            (change(message("a"), at=SESSIONS[6]), Busy),
            (change(message("a"), at=Address(HERE.tenant, "none")), NotFound),
            (change(message("first"), at=SESSIONS[7]), AlreadyExists),
        ]
        good = [change(message("good"), at=at) for at in SESSIONS[12:]]
        pipelines.clear()
        jobs = [*good, *(one for one, _ in bad)]
        outcomes = await asyncio.gather(*map(store.commit, jobs), return_exceptions=True)
        assert max(pipelines) > 8
        assert all(isinstance(one, Receipt) for one in outcomes[: len(good)])
        for (_, error), outcome in zip(bad, outcomes[len(good) :], strict=True):
            assert type(outcome) is error, (error, outcome)
        for n, at in enumerate(SESSIONS):
            assert await ids(store, at) == (["first", "good"] if n >= 12 else ["first"])
        await store.close()

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_appends_whose_shared_answer_is_lost_are_made_once_under_their_keys(
    tmp_path: Path, pipelines: list[int]
) -> None:
    async def scene() -> None:
        server = empty_server()
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await opened(proxy.url())
            proxy.odds, proxy.random = 0.3, rng("lost pipelines")
            receipts, waiting = dict[int, Receipt](), dict(enumerate(changes(3)))
            while waiting:
                outcomes = await asyncio.gather(*map(store.commit, waiting.values()), return_exceptions=True)
                answered = zip(waiting, outcomes, strict=True)
                receipts |= {n: one for n, one in answered if isinstance(one, Receipt)}
                waiting = {n: one for n, one in waiting.items() if n not in receipts}
            proxy.odds = 0
            assert max(pipelines) > 8
            for n, at in enumerate(SESSIONS):
                assert sorted(await ids(store, at)) == [f"{n} {m}" for m in range(3)]
            assert [finding async for finding in store.verify(repair=False)] == []
            await store.close()

    asyncio.run(scene())
