"""What goes wrong under a Redis store: answers are lost, memory is full, or the server is gone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.redis_proxy import Proxy
from tests.harness.valkey_server import Cluster, Valkey, free_port, fresh_server
from turnstate.errors import StoreError, StoreUnavailable
from turnstate.stores.redis import RedisStore, connect
from turnstate.stores.values import Fork, Key, SessionFilter, Span
from turnstate.testing.contract.scenes import END, HERE, NOW, change, message, parcel, session

BIG = b"x" * 3_000_000


@pytest.fixture
def server() -> Iterator[Valkey]:
    one = Valkey("--appendonly", "yes", "--appendfsync", "always")
    yield one
    one.stop()


async def ids(store: RedisStore) -> list[str]:
    rows = await store.read(HERE, Span(1, 1, END))
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    return [row.id for row in rows]


async def sound(store: RedisStore) -> bool:
    return [finding async for finding in store.verify(repair=False)] == []


@pytest.mark.req("G5")
def test_a_change_whose_answer_is_lost_is_not_sent_again_and_its_outcome_is_open(
    server: Valkey, tmp_path: Path
) -> None:
    async def lost() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url())
            await store.create(session())
            await store.commit(change(message("a")))
            proxy.requests.clear()
            proxy.losing = 1
            with pytest.raises(StoreUnavailable, match="it is unknown whether the change was applied"):
                await store.commit(change(message("b"), fork=Fork(parent=1, seq=1, operation="fork")))
            assert len(proxy.requests) == 1
            assert len(await store.branches(HERE)) == 2
            assert (await store.get(HERE)).seq == 2
            await store.commit(change(message("c")))
            await store.close()

    asyncio.run(lost())


@pytest.mark.req("G5")
def test_a_change_under_a_key_is_asked_again_and_done_once(server: Valkey, tmp_path: Path) -> None:
    async def lost() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url())
            await store.create(session())
            await store.commit(change())
            proxy.losing = 1
            receipt = await store.commit(change(message("a"), key=Key("k", b"1")))
            assert (receipt.repeated, receipt.last, proxy.losing) == (True, 1, 0)
            proxy.losing = 100
            with pytest.raises(StoreUnavailable):
                await store.commit(change(message("b"), key=Key("l", b"2")))
            proxy.losing = 0
            receipt = await store.commit(change(message("b"), key=Key("l", b"2")))
            assert (receipt.repeated, receipt.last) == (True, 2)
            assert await ids(store) == ["a", "b"]
            await store.close()

    asyncio.run(lost())


@pytest.mark.req("G5")
def test_an_epoch_that_was_ended_without_an_answer_is_not_taken_for_a_refusal(
    server: Valkey, tmp_path: Path
) -> None:
    async def lost() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url())
            await store.create(session())
            await store.commit(change())
            proxy.losing = 1
            with pytest.raises(StoreUnavailable, match="it is unknown"):
                await store.commit(change(epoch=1, next_epoch=True, key=Key("k", b"1")))
            assert (await store.get(HERE)).epoch == 2
            await store.close()

    asyncio.run(lost())


def test_a_question_is_asked_again_when_its_answer_is_lost(server: Valkey, tmp_path: Path) -> None:
    async def lost() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url())
            await store.create(session(), [message("a", words=["w"])])
            for ask in (
                lambda: store.get(HERE),
                lambda: ids(store),
                lambda: store.page(HERE.tenant, SessionFilter()),
                lambda: store.search(HERE.tenant, ["w"], user=None, before=None, limit=1),
                lambda: store.update(HERE, title="t"),
                lambda: store.delivered("nothing"),
            ):
                await ask()
                proxy.losing = 1
                await ask()
                assert proxy.losing == 0
            await store.close()

    asyncio.run(lost())


def test_a_lease_whose_answer_was_lost_is_not_taken_twice(server: Valkey, tmp_path: Path) -> None:
    async def lost() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url())
            await store.create(session())
            await store.get(HERE)
            proxy.losing = 1
            with pytest.raises(StoreUnavailable):
                await store.acquire(HERE, holder="w", until=NOW + 9, now=NOW)
            assert (await store.get(HERE)).fence <= 1
            await store.close()

    asyncio.run(lost())


def test_a_server_that_falls_silent_is_given_up_in_time(server: Valkey, tmp_path: Path) -> None:
    async def silent() -> None:
        async with Proxy(tmp_path, server.socket) as proxy:
            store = await connect(proxy.url(timeout=2))
            await store.create(session())
            await store.commit(change())  # the server knows the script now
            proxy.silent = True
            with pytest.raises(StoreUnavailable, match="it is unknown"):
                await store.commit(change(message("a")))
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await store.get(HERE)
            proxy.silent = False
            assert await ids(store) == ["a"]
            await store.close()

    asyncio.run(silent())


def test_a_server_that_stops_and_goes_on_has_done_each_change_once_at_most(server: Valkey) -> None:
    async def stopped() -> None:
        store = await connect(f"{server.url}?timeout=2")
        await store.create(session())
        server.process.send_signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            jobs = [store.commit(change(message(f"m{n}"))) for n in range(50)]
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
            assert all(isinstance(one, StoreUnavailable) for one in outcomes)
            assert time.monotonic() - begun < 60
        finally:
            server.process.send_signal(signal.SIGCONT)
        await store.commit(change(message("last")))
        found = await ids(store)
        assert len(found) == len(set(found))
        assert await sound(store)
        await store.close()

    asyncio.run(stopped())


def test_full_memory_refuses_a_change_whole_and_lets_sessions_be_removed(server: Valkey) -> None:
    async def full() -> None:
        store = await connect(server.url)
        await store.create(session(idle=5), [message("a")])
        await store.create(session("s2"), [message("big", body=BIG)])
        await store.commit(change(parcels=(parcel("p"),)))
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        before = await store.get(HERE)
        for refused in (
            change(message("b", words=["w"]), key=Key("k", b"1"), parcels=(parcel("q"),)),
            change(fork=Fork(parent=1, seq=1, operation="fork")),
            change(end="closed"),
        ):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await store.commit(refused)
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await store.create(session("s3"))
        await store.close()
        store = await connect(server.url)
        assert await store.get(HERE) == before
        assert await ids(store) == ["a"]
        assert [one.id for one in await store.parcels()] == ["p"]
        await store.delivered("p")
        assert (await store.remove(HERE._replace(session="s2"))).entries == 1
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await store.commit(change(message("b"), key=Key("k", b"1")))
        assert await sound(store)
        await store.close()

    asyncio.run(full())


def test_a_server_that_forgot_the_scripts_is_given_them_again(server: Valkey) -> None:
    async def forgotten() -> None:
        store = await connect(server.url)
        await store.create(session(), [message("a", words=["w"])])
        await store.commit(change(message("b"), parcels=(parcel("p"),)))
        for ask in (
            lambda: store.commit(change(message("c"))),
            lambda: store.page(HERE.tenant, SessionFilter()),
            lambda: store.search(HERE.tenant, ["w"], user=None, before=None, limit=1),
            lambda: store.take(NOW, until=NOW + 9, limit=9),
            lambda: store.delivered("p"),
        ):
            server.ask("SCRIPT", "FLUSH")
            await ask()
        assert await ids(store) == ["a", "b", "c"]
        await store.close()

    asyncio.run(forgotten())


def test_scripts_that_a_cluster_forgot_are_sent_again() -> None:
    async def forgotten(cluster: Cluster) -> None:
        store = await connect(cluster.url)
        for n in range(20):
            await store.create(session(f"s{n}"), [message("a", words=["w"])])
        for node in cluster.nodes:
            node.ask("SCRIPT", "FLUSH")
        assert len(await store.page(HERE.tenant, SessionFilter())) == 20
        for node in cluster.nodes:
            node.ask("SCRIPT", "FLUSH")
        assert len(await store.search(HERE.tenant, ["w"], user=None, before=None, limit=99)) == 20
        await store.close()

    cluster = Cluster()
    try:
        asyncio.run(forgotten(cluster))
    finally:
        cluster.stop()


@pytest.mark.req("G6")
def test_what_was_acknowledged_is_there_when_the_server_was_killed(server: Valkey) -> None:
    async def killed() -> None:
        store = await connect(server.url)
        assert store.durability == "fsync"
        await store.create(session())
        acknowledged = list[str]()
        for n in range(5):
            for m in range(20):
                await store.commit(change(message(f"{n} {m}", words=["w"]), key=Key(f"{n} {m}", b"1")))
                acknowledged.append(f"{n} {m}")
            server.kill()
            with pytest.raises(StoreUnavailable):
                await store.commit(change(message("nowhere")))
            server.start()
        assert await ids(store) == acknowledged
        assert await sound(store)
        await store.close()

    asyncio.run(killed())


def test_a_log_of_writes_that_lost_its_end_gives_a_sound_beginning(server: Valkey) -> None:
    async def written() -> None:
        store = await connect(server.url)
        await store.create(session(idle=5))
        for n in range(50):
            parcels = (parcel(f"p{n}"),)
            records = (message(f"{n} a", words=["w"]), message(f"{n} b"))
            await store.commit(change(*records, key=Key(f"{n}", b"1"), parcels=parcels, now=NOW + n))
        await store.close()

    async def there() -> int:
        store = await connect(server.url)
        assert await sound(store)
        found = await ids(store)
        assert len(found) % 2 == 0
        assert len(await store.parcels(limit=999)) == len(found) // 2
        await store.close()
        return len(found)

    asyncio.run(written())
    lengths = list[int]()
    for lost in (1, 200, 3_000, 20_000):
        server.kill()
        (log,) = Path(server.folder, "appendonlydir").glob("*.incr.aof")
        data = log.read_bytes()
        log.write_bytes(data[:-lost])
        server.start()
        lengths.append(asyncio.run(there()))
    assert 100 > lengths[0] >= lengths[1] > lengths[2] > lengths[3]


def test_a_master_that_became_a_replica_is_told(server: Valkey) -> None:
    async def demoted() -> None:
        store = await connect(server.url)
        await store.create(session())
        master = Valkey(port=free_port())
        try:
            server.ask("REPLICAOF", "127.0.0.1", master.port)
            with pytest.raises(StoreUnavailable, match="replica"):
                await store.commit(change(message("a")))
        finally:
            server.ask("REPLICAOF", "NO", "ONE")
            master.stop()
            await store.close()

    asyncio.run(demoted())


def test_a_key_of_another_program_is_told(server: Valkey) -> None:
    async def foreign() -> None:
        store = await connect(server.url)
        await store.create(session())
        (row,) = (key for key in server.ask("KEYS", "*") if b":row:" in key)
        server.ask("DEL", row)
        server.ask("SET", row, "mine")
        with pytest.raises(StoreError, match="another program"):
            await store.get(HERE)
        await store.close()

    asyncio.run(foreign())


def test_a_closed_store_says_so() -> None:
    async def closed() -> None:
        store = await connect(fresh_server())
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.get(HERE)

    asyncio.run(closed())


def test_more_tasks_than_connections_wait_for_one_another() -> None:
    async def crowded() -> None:
        store = await connect(fresh_server())
        await store.create(session())
        await asyncio.gather(*(store.commit(change(message(f"m{n}"))) for n in range(500)))
        assert len(await ids(store)) == 500
        await store.close()

    asyncio.run(crowded())
