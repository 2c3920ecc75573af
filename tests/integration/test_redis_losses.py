"""A server returned without acknowledged writes: the store that got the answers reports what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.harness.valkey_server import Valkey
from turnstate.stores.redis import RedisStore, connect
from turnstate.stores.values import Finding, Fork, Key
from turnstate.testing.contract.scenes import HERE, change, message, session


@pytest.fixture
def server() -> Iterator[Valkey]:
    one = Valkey()  # it keeps what it had when it was last told to save
    yield one
    one.stop()


@asynccontextmanager
async def opened(server: Valkey) -> AsyncIterator[RedisStore]:
    store = await connect(server.url)
    try:
        yield store
    finally:
        await store.close()


def go_back(server: Valkey) -> None:
    server.kill()
    server.start()


async def findings(store: RedisStore) -> list[Finding]:
    return [finding async for finding in store.verify(repair=False)]


async def set_back(server: Valkey, store: RedisStore) -> None:
    """Write two entries, acknowledge two more, and lose those."""
    assert store.durability == "best_effort"
    await store.create(session())
    await store.commit(change(message("a"), message("b")))
    server.ask("SAVE")
    await store.commit(change(message("c"), key=Key("c", b"1")))
    await store.commit(change(message("d")))
    go_back(server)


@pytest.mark.req("G6")
def test_what_is_missing_is_told_though_nobody_wrote_since(server: Valkey) -> None:
    async def silent() -> None:
        async with opened(server) as store:
            await set_back(server, store)
            (finding,) = await findings(store)
            assert (finding.session, finding.branch, finding.seq, finding.id) == (HERE.session, 1, 4, "d")
            assert finding.fault.endswith("is missing; the log was found to end at entry 2 of branch 1")
            assert await findings(store) == [finding]

    asyncio.run(silent())


@pytest.mark.req("G6")
def test_what_is_missing_is_told_though_others_wrote_over_it(server: Valkey) -> None:
    async def written_over() -> None:
        async with opened(server) as store, opened(server) as other:
            await set_back(server, store)
            for name in ("x", "y", "z"):
                await other.commit(change(message(name), key=Key(name, b"1")))
            assert await findings(other) == []
            assert (await store.get(HERE)).seq == 5
            await store.commit(change(message("e")))
            (finding,) = await findings(store)
            assert (finding.seq, finding.id) == (4, "d")

    asyncio.run(written_over())


@pytest.mark.req("G5", "G6")
def test_a_lost_request_that_comes_again_under_its_key_is_made_anew(server: Valkey) -> None:
    async def again() -> None:
        async with opened(server) as store:
            await set_back(server, store)
            receipt = await store.commit(change(message("c"), key=Key("c", b"1")))
            assert (receipt.repeated, receipt.last) == (False, 3)
            assert len(await findings(store)) == 1

    asyncio.run(again())


@pytest.mark.req("G6")
def test_a_fork_that_was_lost_is_told(server: Valkey) -> None:
    async def forked() -> None:
        async with opened(server) as store:
            await store.create(session(), [message("a")])
            server.ask("SAVE")
            await store.commit(change(fork=Fork(parent=1, seq=1, operation="fork")))
            go_back(server)
            assert (await store.get(HERE)).branch == 1
            (finding,) = await findings(store)
            assert (finding.branch, finding.seq) == (2, 1)

    asyncio.run(forked())


@pytest.mark.req("G6")
def test_a_session_that_is_lost_whole_is_told(server: Valkey) -> None:
    async def vanished() -> None:
        async with opened(server) as store:
            await store.create(session(), [message("a")])
            go_back(server)
            (finding,) = await findings(store)
            assert "it was removed by another process, or it is lost" in finding.fault

    asyncio.run(vanished())


def test_removing_is_no_loss_and_neither_is_another_session_of_that_name(server: Valkey) -> None:
    async def removed() -> None:
        async with opened(server) as store, opened(server) as other:
            await store.create(session(), [message("a"), message("b")])
            await store.remove(HERE)
            assert await findings(store) == []
            await store.create(session(), [message("a"), message("b")])
            await other.remove(HERE)
            await other.create(session(), [message("x")])
            await store.commit(change(message("c")))
            assert await findings(store) == []

    asyncio.run(removed())
