"""Connections that break, servers that restart, answers that get lost, and locks that others hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest

from tests.harness.postgres_proxy import Proxy
from tests.harness.postgres_server import PostgresServer, executed, fresh_url, local_server, with_settings
from turnstate.errors import StoreDamaged, StoreUnavailable
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Change, Key, Parcel, Row, Span
from turnstate.testing.contract.scenes import HERE, change, message, parcel, session

Scene = Callable[[PostgresStore], Coroutine[Any, Any, None]]


async def entries(store: PostgresStore) -> list[Row]:
    return await store.read(HERE, Span(1, 1, 2**31))


def play(scene: Scene, **settings: str) -> None:
    """Run a scenario on a store with one session."""

    async def played(url: str) -> None:
        store = await connect(url)
        try:
            await store.create(session())
            await scene(store)
        finally:
            await store.close()

    with fresh_url(**settings) as url:
        asyncio.run(played(url))


def broken_off(name: str) -> str:
    return (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        f"WHERE application_name = '{name}' AND pid <> pg_backend_pid()"
    )


@pytest.mark.req("G3")
def test_a_connection_that_died_is_replaced() -> None:
    async def scene(store: PostgresStore) -> None:
        await asyncio.gather(*(store.get(HERE) for _ in range(5)))
        assert await executed(broken_off("victim"))
        await store.commit(change(message("a")))
        await executed(broken_off("victim"))
        assert len(await entries(store)) == 1

    play(scene, application_name="victim")


@pytest.mark.req("G3")
def test_a_server_that_restarts_is_found_again() -> None:
    server = PostgresServer()

    async def scene() -> None:
        store = await connect(server.url())
        try:
            await store.create(session())
            await asyncio.to_thread(server.stop)
            for attempt in (store.get(HERE), store.commit(change(message("a")))):
                with pytest.raises(StoreUnavailable):
                    await attempt
            await asyncio.to_thread(server.start)
            await store.commit(change(message("a")))
            assert [row.id for row in await entries(store)] == ["a"]
        finally:
            await store.close()

    try:
        asyncio.run(scene())
    finally:
        server.remove()


@asynccontextmanager
async def behind_proxy() -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """Yield a store whose connections go through a proxy."""
    server = local_server()
    with TemporaryDirectory(prefix="turnstate-") as folder:
        async with Proxy(Path(folder), server.folder) as proxy:
            store = await connect(proxy.url(schema="proxied"))
            try:
                await store.create(session())
                yield store, proxy
            finally:
                await store.close()
                await executed("DROP SCHEMA proxied CASCADE", url=server.url())


@pytest.mark.req("G5", "G6")
def test_a_change_whose_answer_is_lost_is_sent_again_under_its_key() -> None:
    async def scene() -> None:
        async with behind_proxy() as (store, proxy):
            await store.commit(change(message("first")))
            asked = change(message("a"), key=Key("k", b"1"), expected_version=1, parcels=(parcel("p"),))
            proxy.lose_next_answer()
            again = await store.commit(asked)
            assert (again.repeated, again.first, again.version) == (True, 2, 2)
            assert [row.id for row in await entries(store)] == ["first", "a"]
            assert proxy.lost == 1

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_a_write_without_a_key_is_not_repeated_behind_the_callers_back() -> None:
    async def scene() -> None:
        async with behind_proxy() as (store, proxy):
            await store.acquire(HERE, holder="v", until=1, now=0)
            proxy.lose_next_answer()
            with pytest.raises(StoreUnavailable):
                await store.acquire(HERE, holder="w", until=9, now=1)
            row = await store.get(HERE)
            assert (row.fence, row.holder) == (2, "w")

    asyncio.run(scene())


@pytest.mark.req("G3")
def test_a_read_whose_answer_is_lost_is_asked_again() -> None:
    async def scene() -> None:
        async with behind_proxy() as (store, proxy):
            await store.commit(change(message("a")))
            proxy.lose_next_answer()
            assert [row.id for row in await entries(store)] == ["a"]
            assert proxy.lost == 1

    asyncio.run(scene())


@pytest.mark.req("G6")
def test_an_append_is_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "IDLE", 3_600)  # the index is not written between slow appends

    async def scene() -> None:
        async with behind_proxy() as (store, proxy):
            await store.commit(change(message("warm"), key=Key("warm", b"1")))
            before = proxy.requests
            for n in range(10):
                asked = change(
                    message(f"m{n}", words=["w"]), key=Key(f"k{n}", b"1"), parcels=(parcel(f"p{n}"),)
                )
                await store.commit(asked)
            assert proxy.requests - before == 10

    asyncio.run(scene())


@pytest.mark.req("G5", "G6")
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_what_the_server_rolled_back_is_tried_again(level: str) -> None:
    async def scene(store: PostgresStore) -> None:
        changes = [change(message(f"m{n}", tokens=n), key=Key(f"k{n}", b"1")) for n in range(40)]
        receipts = await asyncio.gather(*map(store.commit, changes))
        assert sorted(one.last for one in receipts) == list(range(1, 41))
        rows = await entries(store)
        assert [row.seq for row in rows] == list(range(1, 41))
        assert rows[-1].total == sum(range(40))

    play(scene, default_transaction_isolation=level)


async def raced(store: PostgresStore) -> list[Row]:
    """Let twenty tasks append at once under one key, repeatedly, on open connections.

    A store sends the changes of one session in order, so five of them race.
    """
    await asyncio.gather(*(store.get(HERE) for _ in range(60)))
    stores = [PostgresStore(store._connections) for _ in range(5)]
    try:
        for n in range(15):
            key = Key(f"k{n}", b"same")
            racers = [stores[m % 5].commit(change(message(f"{n} {m}"), key=key)) for m in range(20)]
            receipts = await asyncio.gather(*racers)
            assert sorted(one.repeated for one in receipts) == [False] + [True] * 19
    finally:
        for one in stores:
            await one._indexer.close()
    return await entries(store)


@pytest.mark.req("G5", "G6")
def test_of_those_that_use_one_key_at_once_one_writes() -> None:
    async def scene(store: PostgresStore) -> None:
        assert [row.seq for row in await raced(store)] == list(range(1, 16))

    play(scene, synchronous_commit="on")


def test_a_function_that_forgets_the_lock_is_caught() -> None:
    async def scene(store: PostgresStore) -> None:
        where = store._connections.target
        source = (
            "SELECT pg_get_functiondef(oid) FROM pg_proc "
            f"WHERE proname = 'append' AND pronamespace = '{where.schema}'::regnamespace"
        )
        ((function,),) = await executed(source)
        unlocked = function.replace("FOR NO KEY UPDATE;", ";", 1)
        step = "new_total := own.total;"
        slow = unlocked.replace(step, f"PERFORM pg_sleep(0.05); {step}", 1)
        assert len({function, unlocked, slow}) == 3
        await executed(slow)
        with pytest.raises((AssertionError, StoreDamaged)):
            await raced(store)

    play(scene, synchronous_commit="on")


@pytest.mark.req("F3", "G6")
def test_those_that_send_the_same_parcels_in_any_order_do_not_block_each_other() -> None:
    async def scene(store: PostgresStore) -> None:
        addresses = [HERE._replace(session=f"s{n}") for n in range(2, 12)]
        for at in addresses:
            await store.create(session(at.session))
        parcels = tuple(parcel(f"p{n}") for n in range(20))

        def sent(n: int, order: tuple[Parcel, ...]) -> Change:
            return change(at=addresses[n], parcels=order)

        await asyncio.gather(*(store.commit(sent(n, parcels[:: (-1) ** n])) for n in range(10)))
        assert len(await store.parcels()) == 20

    play(scene)


@asynccontextmanager
async def locked(store: PostgresStore) -> AsyncIterator[None]:
    """Hold the lock of the session from another connection."""
    where = store._connections.target
    connection = await asyncpg.connect(where.dsn)
    try:
        async with connection.transaction():
            await connection.execute(f'SELECT * FROM "{where.schema}".session FOR UPDATE')
            yield
    finally:
        await connection.close()


@pytest.mark.req("G3", "G5")
def test_who_appends_waits_for_a_lock_and_who_reads_does_not() -> None:
    async def scene(store: PostgresStore) -> None:
        async with locked(store):
            append = asyncio.create_task(store.commit(change(message("a"), expected_version=0)))
            for _ in range(20):
                assert await entries(store) == []
            assert not append.done()
        assert (await append).last == 1

    play(scene)


@pytest.mark.req("G6")
def test_what_the_server_breaks_off_has_written_nothing() -> None:
    async def scene(store: PostgresStore) -> None:
        async with locked(store):
            with pytest.raises(StoreUnavailable, match="canceled the request"):
                await store.commit(change(message("a")))
        assert await entries(store) == []

    play(scene, statement_timeout="200")


@pytest.mark.req("G3")
def test_many_tasks_share_a_few_connections() -> None:
    async def scene(store: PostgresStore) -> None:
        at = [HERE._replace(session=f"t{n}") for n in range(8)]
        for one in at:
            await store.create(session(one.session))
        await asyncio.gather(*(store.commit(change(message(f"m{n}"), at=at[n % 8])) for n in range(200)))
        ((count,),) = await executed("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'")
        assert 1 <= count <= 10

    play(scene, application_name="crowd")


@pytest.mark.req("G3")
def test_where_the_server_allows_few_connections_they_are_shared() -> None:
    server = local_server()

    async def scene() -> None:
        await executed("DROP DATABASE IF EXISTS small", "DROP ROLE IF EXISTS few", url=server.url())
        await executed(
            "CREATE ROLE few LOGIN CONNECTION LIMIT 2", "CREATE DATABASE small OWNER few", url=server.url()
        )
        store = await connect(server.url("small", user="few"))
        try:
            at = [HERE._replace(session=f"t{n}") for n in range(5)]
            await asyncio.gather(*(store.create(session(one.session)) for one in at))
            await asyncio.gather(*(store.commit(change(message(f"m{n}"), at=at[n % 5])) for n in range(60)))
            for one in at:
                assert (await store.get(one)).seq == 12
        finally:
            await store.close()

    asyncio.run(scene())


@pytest.mark.req("G3")
def test_after_a_failover_the_store_says_what_it_found() -> None:
    server = local_server()
    database = "failover"

    async def scene() -> None:
        await executed(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}", url=server.url())
        url = server.url(database, application_name="moved")
        store = await connect(url)
        try:
            assert store.durability == "fsync"
            await executed(
                f"ALTER DATABASE {database} SET synchronous_commit = off", broken_off("moved"), url=url
            )
            await store.create(session())
            assert store.durability == "best_effort"
            setting = f"ALTER DATABASE {database} SET default_transaction_read_only = on"
            await executed(
                setting, broken_off("moved"), url=with_settings(server.url(), application_name="x")
            )
            with pytest.raises(StoreUnavailable, match="read-only"):
                await store.commit(change(message("a")))
        finally:
            await store.close()

    asyncio.run(scene())


@pytest.mark.req("G3", "G4")
def test_two_schemas_of_one_database_are_two_stores() -> None:
    async def scene(store: PostgresStore) -> None:
        await store.commit(change(message("a", words=["w"])))
        async with other() as second:
            await second.create(session(title="other"))
            assert await second.search(HERE.tenant, ["w"], user=None, before=None, limit=9) == []
            assert await entries(second) == []
        assert (await store.get(HERE)).title == ""

    @asynccontextmanager
    async def other() -> AsyncIterator[PostgresStore]:
        schema = target(second_url).schema
        store = await connect(second_url)
        try:
            yield store
        finally:
            await store.close()
            await executed(f"DROP SCHEMA {schema} CASCADE")

    with fresh_url() as second_url:
        play(scene)


@pytest.mark.req("A6")
def test_an_entry_with_more_words_than_the_index_takes_is_kept_and_found_by_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(store: PostgresStore) -> None:
        words = tuple(f"{n:06}{'x' * 60}" for n in range(30_000))
        monkeypatch.setattr(search, "entry_words", lambda *_: words)
        await store.commit(change(message("a")))
        assert [row.id for row in await entries(store)] == ["a"]
        for word, count in ((words[0], 1), (words[-1], 0)):
            hits = await store.search(HERE.tenant, [word], user=None, before=None, limit=9)
            assert len(hits) == count

    play(scene)
