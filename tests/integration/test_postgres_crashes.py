"""What was acknowledged outlives a crash of the server, exactly where the store says so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer

from holdfast.errors import HoldfastError
from holdfast.stores.postgres import connect
from holdfast.stores.values import Row, Span
from holdfast.testing.contract_scenes import HERE, change, message, session

WRITERS = 6


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer(
        wal_writer_delay="10s", autovacuum="off"
    )  # nothing is flushed that nobody waits for
    yield made
    made.remove()


async def begun(server: PostgresServer) -> None:
    store = await connect(server.url())
    await store.create(session())
    await store.close()


async def acknowledged(server: PostgresServer, **settings: str) -> set[str]:
    """Let some write, crash the server under them, and give what they were told is kept."""
    store, told, enough = await connect(server.url(**settings)), set[str](), asyncio.Event()

    async def write(name: str) -> None:
        for n in range(100_000):
            id = f"{name} {n}"
            try:
                await store.commit(change(message(id), message(f"{id} too")))
            except HoldfastError:
                return
            told.add(id)
            if len(told) == 40:
                enough.set()

    writers = [asyncio.create_task(write(f"w{n}")) for n in range(WRITERS)]
    await enough.wait()
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    await asyncio.gather(*writers)
    await store.close()
    return told


async def kept(server: PostgresServer) -> list[Row]:
    store = await connect(server.url())
    try:
        return await store.read(HERE, Span(1, 1, 2**31))
    finally:
        await store.close()


@pytest.mark.req("G3", "G6")
def test_nothing_acknowledged_is_lost_and_nothing_is_there_in_part(server: PostgresServer) -> None:
    asyncio.run(begun(server))
    told = asyncio.run(acknowledged(server))
    server.start()
    rows = asyncio.run(kept(server))
    ids = [row.id for row in rows]
    assert told <= set(ids)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(second == f"{first} too" for first, second in zip(ids[::2], ids[1::2], strict=True))
    assert not any(row.damaged for row in rows)


def test_a_server_that_does_not_wait_for_its_disk_is_caught(server: PostgresServer) -> None:
    asyncio.run(begun(server))
    told = asyncio.run(acknowledged(server, synchronous_commit="off"))
    server.start()
    assert not told <= {row.id for row in asyncio.run(kept(server))}
