"""The search index of PostgreSQL follows the log, and a search finds all that was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tests.harness.postgres_server import execute, executed, fresh_url, local_server
from tests.harness.thoroughness import rng, runs
from turnstate.errors import NotFound
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.log import change_columns
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address, Record
from turnstate.testing.contract.scenes import HERE, change, message, session

OTHER = Address(HERE.tenant, "other")


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_url() as url:
        yield url


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index only before a search."""
    monkeypatch.setattr(search, "IDLE", 3_600)
    monkeypatch.setattr(search, "BUSY", 3_600)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await connect(url)
    try:
        yield store
    finally:
        await store.close()


def said(count: int, *, first: int = 0) -> list[Record]:
    return [message(f"m{n}", words=["w", f"n{n}"]) for n in range(first, first + count)]


def newest_first(count: int) -> list[str]:
    return [f"m{n}" for n in reversed(range(count))]


async def found(store: PostgresStore, word: str = "w") -> list[str]:
    hits = await store.search(HERE.tenant, [word], user=None, before=None, limit=10_000)
    return [hit.row.id for hit in hits]


async def pages(store: PostgresStore) -> list[str]:
    ids, mark = list[str](), None
    while page := await store.search(HERE.tenant, ["w"], user=None, before=mark, limit=7):
        ids, mark = ids + [hit.row.id for hit in page], page[-1].mark
    return ids


async def verified(store: PostgresStore, *, repair: bool = False) -> list[str]:
    return [finding.fault async for finding in store.verify(repair=repair)]


async def indexed(url: str) -> list[int]:
    return [key for (key,) in await executed(f"SELECT entry FROM {target(url).schema}.word ORDER BY entry")]


async def through(url: str) -> int:
    ((key,),) = await executed(f"SELECT through FROM {target(url).schema}.indexed")
    return int(key)


@pytest.mark.req("C9")
@pytest.mark.usefixtures("slow")
def test_an_append_writes_no_words_and_a_search_finds_it(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(300))
            assert await indexed(url) == []
            assert await found(store) == newest_first(300)
            assert len(await indexed(url)) == 300
            await store.commit(change(*said(5, first=300)))
            assert len(await indexed(url)) == 300
            assert await found(store) == newest_first(305)
            assert await verified(store) == []

    asyncio.run(scene())


@pytest.mark.req("C9")
@pytest.mark.usefixtures("slow")
def test_a_transaction_that_commits_late_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A takes its key, B takes a higher one, commits and is indexed; then A commits."""
    monkeypatch.setattr(search, "STEP", 1)  # everything is settled at once if it can be

    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session())
            await store.create(session(OTHER.session), [message("before", words=["w"])])
            assert await found(store) == ["before"]
            settled = await through(url)
            assert settled == (await indexed(url))[-1]
            late = await asyncpg.connect(target(url).dsn)
            try:
                query = store._connections._queries["append"]
                given = query.arguments(change_columns(change(message("A", words=["w"]))))
                async with late.transaction():
                    await late.fetch(query.sql, *given)
                    for n in range(3):
                        await store.commit(change(message(f"B{n}", words=["w"]), at=OTHER))
                        assert await found(store) == [*(f"B{m}" for m in reversed(range(n + 1))), "before"]
                    assert await through(url) == settled
            finally:
                await late.close()
            assert await found(store) == ["B2", "B1", "B0", "A", "before"]
            await store.commit(change(message("C", words=["w"]), at=OTHER))
            assert await found(store) == ["C", "B2", "B1", "B0", "A", "before"]
            await store._indexer._settle()
            assert await through(url) > settled
            assert await verified(store) == []

    asyncio.run(scene())


@pytest.mark.req("C9")
@pytest.mark.usefixtures("slow")
def test_too_much_to_wait_for_is_read_instead_with_the_same_hits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STEP", 20)

    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(30))
            assert len(await found(store)) == 30
            await store.commit(change(*said(90, first=30)))
            monkeypatch.setattr(search, "MOST_BEHIND", 50)
            assert await pages(store) == await found(store) == newest_first(120)
            assert await found(store, "n77") == ["m77"]
            assert len(await indexed(url)) == 30
            monkeypatch.setattr(search, "MOST_BEHIND", 90)
            assert await pages(store) == newest_first(120)
            assert len(await indexed(url)) == 120

    asyncio.run(scene())


@pytest.mark.req("C9")
@pytest.mark.usefixtures("slow")
def test_a_store_that_cannot_be_written_is_searched_with_the_same_hits() -> None:
    server, schema = local_server(), "read_only"
    url = server.url(schema=schema)

    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(10))
            assert len(await found(store)) == 10
            await store.commit(change(*said(30, first=10)))
        await executed(
            f"GRANT USAGE ON SCHEMA {schema} TO reader",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
            url=server.url(),
        )
        async with opened(server.url(user="reader", schema=schema)) as store:
            assert await pages(store) == await found(store) == newest_first(40)
        (count,) = await executed(f"SELECT count(*) FROM {schema}.word", url=server.url())
        assert count[0] == 10

    drop = f"DROP SCHEMA IF EXISTS {schema} CASCADE"
    execute(drop, "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", url=server.url())
    asyncio.run(scene())
    execute(drop, url=server.url())


@pytest.mark.req("C9")
def test_an_idle_store_catches_up_and_so_does_a_worker(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STEP", 20)
    monkeypatch.setattr(search, "IDLE", 0.001)

    async def behind(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(await indexed(url)) < count or await through(url) < (await indexed(url))[-1]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(100))
            await behind(100)
            monkeypatch.setattr(search, "IDLE", 3_600)
            await store.commit(change(*said(50, first=100)))
        monkeypatch.setattr(search, "IDLE", 0.001)
        async with opened(url) as worker:
            await worker.take(1, until=2, limit=1)
            await behind(150)

    asyncio.run(scene())


@pytest.mark.req("C9")
def test_erasing_while_others_index_leaves_no_word(url: str) -> None:
    random = rng("erasing while others index")

    async def race(store: PostgresStore, other: PostgresStore, at: Address) -> None:
        records = [message(f"{at.session} {n}", words=["secret", f"w{n}"]) for n in range(20)]
        await store.create(session(at.session), records)

        async def erase() -> None:
            await asyncio.sleep(random.random() * 0.006)
            await store.remove(at)

        await asyncio.gather(erase(), other._indexer._step(0), store._indexer._step(0))
        assert await indexed(url) == []
        with pytest.raises(NotFound):
            await store.get(at)

    async def scene() -> None:
        async with opened(url) as store, opened(url) as other:
            for number in range(runs(10, long=200)):
                await race(store, other, Address(HERE.tenant, f"s{number}"))
            assert await found(store, "secret") == []
            assert await verified(store) == []

    asyncio.run(scene())


@pytest.mark.req("C9")
def test_words_that_were_cut_before_a_session_was_erased_are_not_written(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(3))
            missing = await store._indexer._missing(0)
            await store.remove(HERE)
            await store._indexer._index(missing)
            assert await indexed(url) == []

    asyncio.run(scene())


@pytest.mark.req("C9", "G6")
def test_several_that_index_at_once_index_everything_once(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as one, opened(url) as two, opened(url) as three:
            await one.create(session(), said(600))
            lists = await asyncio.gather(*(found(store) for store in (one, two, three) for _ in range(3)))
            assert all(ids == newest_first(600) for ids in lists)
            assert len(await indexed(url)) == 600
            assert await verified(one) == []

    asyncio.run(scene())


@pytest.mark.req("C9", "G6")
@pytest.mark.usefixtures("slow")
def test_a_message_that_is_damaged_before_it_is_indexed_is_a_damaged_hit_until_it_is_repaired(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hits(store: PostgresStore) -> list[tuple[str, bool]]:
        some = await store.search(HERE.tenant, ["n2"], user=None, before=None, limit=99)
        return [(hit.row.id, hit.row.damaged) for hit in some]

    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(9))
            await executed(f"UPDATE {target(url).schema}.entry SET body = 'x' WHERE id = 'm4'")
            with monkeypatch.context() as patched:
                patched.setattr(search, "STEP", 5)
                patched.setattr(search, "MOST_BEHIND", 5)
                assert await hits(store) == [("m4", True), ("m2", False)]
            for _ in range(2):
                assert await hits(store) == [("m4", True), ("m2", False)]
            assert await verified(store, repair=True)
            assert await hits(store) == [("m2", False)]
            assert await verified(store) == []

    asyncio.run(scene())


@pytest.mark.req("C9", "G6")
def test_an_index_that_was_lost_is_rebuilt_by_a_repair(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            await store.create(session(), said(40))
            await found(store)
            await store._indexer._settle()
        await executed(f"TRUNCATE {target(url).schema}.word")
        async with opened(url) as store:
            assert len(await verified(store, repair=True)) == 40
            assert await verified(store) == []
            assert await found(store) == newest_first(40)

    asyncio.run(scene())
