"""Search on Redis over many buckets has one order, loses no hit between pages, and has a known bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from valkey_server import fresh_cluster, fresh_server

from turnstate.stores.redis import RedisStore, connect, search
from turnstate.stores.redis.layout import bucket_of
from turnstate.stores.values import Address, Hit
from turnstate.testing.contract.scenes import HERE, change, message, session

both = pytest.mark.parametrize("fresh", [fresh_server, fresh_cluster])


async def pages(store: RedisStore, limit: int, *words: str) -> list[Hit]:
    found, mark = list[Hit](), None
    while page := await store.search(HERE.tenant, words, user=None, before=mark, limit=limit):
        found += page
        mark = page[-1].mark
    return found


@both
def test_pages_over_many_buckets_have_every_hit_once_and_in_one_order(fresh: Callable[[], str]) -> None:
    async def searched() -> None:
        store = await connect(fresh())
        names = [f"s{n}" for n in range(12)]
        assert len({bucket_of(Address(HERE.tenant, name)) for name in names}) > 6

        async def told(name: str) -> None:
            await store.create(session(name))
            for n in range(2):  # many at once have stamps ahead of the clock
                records = [message(f"{n} {m}", words=["w", "odd" if m % 2 else "even"]) for m in range(24)]
                await store.commit(change(*records, at=Address(HERE.tenant, name)))

        await asyncio.gather(*map(told, names))
        everything = await pages(store, 10_000, "w")
        assert len(everything) == 12 * 2 * 24
        assert len({hit.mark for hit in everything}) == len(everything)
        assert everything == sorted(everything, key=lambda hit: -hit.mark)
        for limit in (37, 200):
            assert await pages(store, limit, "w") == everything
        odd = [hit for hit in everything if int(hit.row.id.split()[1]) % 2]
        assert await pages(store, 50, "odd", "w") == odd
        await store.close()

    asyncio.run(searched())


@both
def test_entries_of_the_same_moment_are_all_found_page_by_page(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STEP", 2)

    async def searched() -> None:
        store = await connect(fresh())
        for n in range(12):
            await store._server.ask(
                "SET", f"{{ts:{bucket_of(Address(HERE.tenant, f's{n}'))}}}:clock", 9 * 10**15
            )
        for n in range(12):
            await store.create(session(f"s{n}"), [message("m", words=["w"])])
        everything = await pages(store, 99, "w")
        assert len({hit.mark // 256 for hit in everything}) == 1
        assert len({hit.session for hit in everything}) == 12
        assert await pages(store, 1, "w") == await pages(store, 5, "w") == everything
        await store.close()

    asyncio.run(searched())


@both
def test_a_search_looks_at_as_many_entries_as_it_says(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def searched() -> None:
        store = await connect(fresh())
        await store.create(session(), [message("old", words=["rare"])])
        await store.commit(change(*(message(f"m{n}", words=["common"]) for n in range(299))))
        hits = await store.search(HERE.tenant, ["rare"], user=None, before=None, limit=1)
        assert [hit.row.id for hit in hits] == ["old"]
        monkeypatch.setattr(search, "MAX_SCANNED", 250)
        assert await store.search(HERE.tenant, ["rare"], user=None, before=None, limit=1) == []
        (newest,) = await store.search(HERE.tenant, ["common"], user=None, before=None, limit=1)
        hits = await store.search(HERE.tenant, ["common"], user=None, before=newest.mark, limit=99)
        assert len(hits) == 99
        hits = await store.search(HERE.tenant, ["rare"], user=None, before=hits[-1].mark, limit=1)
        assert [hit.row.id for hit in hits] == ["old"]
        await store.close()

    asyncio.run(searched())
