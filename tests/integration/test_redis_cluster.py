"""A Redis store on a Cluster whose slots move during writes, and whose node stops and returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.harness.redis_proxy import Proxy
from tests.harness.valkey_server import Cluster, free_port
from turnstate.errors import AlreadyExists, StoreUnavailable
from turnstate.stores.redis import connect
from turnstate.stores.redis.layout import bucket_of, session_keys
from turnstate.stores.values import Address, Fork, Key, Span
from turnstate.testing.contract.scenes import END, HERE, change, message, note, parcel, session

SLOT = key_slot(b"{ts:%d}" % bucket_of(HERE))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    one = Cluster()
    yield one
    one.stop()


def test_all_keys_of_a_session_lie_on_one_slot() -> None:
    for at in (HERE, Address("", ""), Address("{a}", "}{b}"), Address("x}", "{ts:1}")):
        assert len({key_slot(key) for key in session_keys(at)}) == 1


@pytest.mark.req("G5")
def test_a_change_whose_answer_is_lost_is_not_sent_again(tmp_path: Path) -> None:
    ports = (free_port(), free_port(), free_port())
    cluster = Cluster(announced=ports)

    async def lost() -> None:
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(Proxy(tmp_path, node.socket, port=port))
                for node, port in zip(cluster.nodes, ports, strict=True)
            ]
            store = await connect(f"redis+cluster://127.0.0.1:{ports[0]}")
            await store.create(session())
            await store.commit(change(message("a")))
            for proxy in proxies:
                proxy.requests.clear()
                proxy.losing = 1
            with pytest.raises(StoreUnavailable, match="it is unknown whether the change was applied"):
                await store.commit(change(message("b"), fork=Fork(parent=1, seq=1, operation="fork")))
            assert sum(b"EVALSHA" in request for proxy in proxies for request in proxy.requests) == 1
            for proxy in proxies:
                proxy.losing = 0
            assert len(await store.branches(HERE)) == 2
            for proxy in proxies:
                proxy.losing = 1
            receipt = await store.commit(change(message("c"), key=Key("k", b"1")))
            assert (receipt.repeated, receipt.last) == (True, 3)
            await store.close()

    try:
        asyncio.run(lost())
    finally:
        cluster.stop()


@pytest.mark.req("G3", "G6")
def test_sessions_are_written_to_while_their_slot_moves(cluster: Cluster) -> None:
    async def moved() -> None:
        store = await connect(cluster.url)
        await store.create(session(user="u", idle=5))
        heard, stop = dict[str, int](), asyncio.Event()

        async def write(name: str) -> None:
            n = 0
            while not stop.is_set():
                n += 1
                records = (message(f"{name} {n}", words=["w"]), note(f"{name} {n} note"))
                receipt = await store.commit(change(*records, parcels=(parcel(f"{name} {n}"),)))
                heard[f"{name} {n}"] = receipt.first

        async def more() -> None:
            begun = len(heard)
            while len(heard) < begun + 20:
                await asyncio.sleep(0.01)

        writers = [asyncio.create_task(write(name)) for name in "abc"]
        for _ in range(3):
            await more()
            source = cluster.owner(SLOT)
            target = next(node for node in cluster.nodes if node is not source)
            assert await asyncio.to_thread(cluster.move, SLOT, target) > 5
            assert cluster.owner(SLOT) is target
        await more()
        stop.set()
        await asyncio.gather(*writers)
        rows = await store.read(HERE, Span(1, 1, END))
        assert [row.seq for row in rows] == list(range(1, 2 * len(heard) + 1))
        assert {row.id: row.seq for row in rows[::2]} == heard
        assert len(await store.parcels(limit=99_999)) == len(heard)
        assert [finding async for finding in store.verify(repair=False)] == []
        await store.close()

    asyncio.run(moved())


async def taken(ask: Callable[[], Awaitable[object]]) -> None:
    """Repeat until it was done; if an answer was lost, the retry may find it done already."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await ask()
        except StoreUnavailable:
            assert time.monotonic() < deadline
        except AlreadyExists:
            return
        else:
            return


def test_a_node_that_is_gone_is_told_and_used_again_when_it_is_back(cluster: Cluster) -> None:
    async def gone() -> None:
        store = await connect(f"{cluster.url}?timeout=3")
        await store.create(session())
        owner = cluster.owner(SLOT)
        owner.kill()
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.commit(change(message("lost")))
        assert time.monotonic() - begun < 120
        owner.start()
        await taken(lambda: store.create(session()))
        await taken(lambda: store.commit(change(message("a"), key=Key("k", b"1"))))
        assert [row.id for row in await store.read(HERE, Span(1, 1, END))] == ["a"]
        await store.close()

    asyncio.run(gone())
