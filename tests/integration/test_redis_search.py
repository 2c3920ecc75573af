"""Search on Redis over many buckets has one order, loses no hit between pages, and has a known bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.harness.thoroughness import rng, runs
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate.errors import StoreUnavailable
from turnstate.stores.redis import RedisStore, connect, search
from turnstate.stores.redis.layout import bucket_of, session_key
from turnstate.stores.redis.server import Script, Server
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


async def ids(store: RedisStore, *words: str) -> list[str]:
    hits = await store.search(HERE.tenant, words, user=None, before=None, limit=10_000)
    return [hit.row.id for hit in hits]


async def indexed(store: RedisStore, at: Address = HERE) -> int:
    return int(await store._server.ask("HLEN", session_key(at, b"word")))


@both
@pytest.mark.req("C9")
def test_an_append_writes_no_words_and_the_first_search_does(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_BYTES", 2_000)  # so that several answers are needed

    async def searched() -> None:
        store = await connect(fresh())
        names = [f"s{n}" for n in range(6)]
        for name in names:
            await store.create(session(name), [message(f"{name} {n}", words=["w", name]) for n in range(30)])
        assert await indexed(store, Address(HERE.tenant, "s1")) == 0
        everything = await ids(store, "w")
        assert len(everything) == len(set(everything)) == 180
        assert await indexed(store, Address(HERE.tenant, "s1")) == 30
        await store.commit(change(message("new", words=["w"]), at=Address(HERE.tenant, "s1")))
        for _ in range(2):
            assert await ids(store, "w") == ["new", *everything]
        assert len(await ids(store, "w", "s3")) == 30
        assert [finding async for finding in store.verify(repair=False)] == []
        await store.close()

    asyncio.run(searched())


@pytest.mark.req("C9")
def test_a_server_that_takes_no_words_is_searched_with_the_same_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Server.run_all

    async def run_all(self: Server, script: Script, calls: list[object], *, twice: bool = False) -> object:
        if script.name == "words":
            raise StoreUnavailable("out of memory")
        return await real(self, script, calls, twice=twice)  # type: ignore[arg-type]

    async def searched() -> None:
        store = await connect(fresh_server())
        await store.create(session(), [message(f"m{n}", words=["w"]) for n in range(40)])
        monkeypatch.setattr(Server, "run_all", run_all)
        for _ in range(2):
            assert await ids(store, "w") == [f"m{n}" for n in reversed(range(40))]
        assert await indexed(store) == 0
        await store.close()

    asyncio.run(searched())


@both
@pytest.mark.req("C9")
def test_erasing_while_others_search_leaves_no_word(fresh: Callable[[], str]) -> None:
    random = rng("erasing while others search")

    async def searched() -> None:
        url = fresh()
        store, other = await connect(url), await connect(url)
        for number in range(runs(10, long=200)):
            at = Address(HERE.tenant, f"s{number}")
            await store.create(session(at.session), [message(f"m{n}", words=["secret"]) for n in range(20)])

            async def erase(at: Address = at) -> None:
                await asyncio.sleep(random.random() * 0.006)
                await store.remove(at)

            await asyncio.gather(erase(), ids(other, "secret"), ids(store, "secret"))
            assert await indexed(store, at) == 0
            assert await ids(store, "secret") == []
        assert [finding async for finding in store.verify(repair=False)] == []
        await store.close()
        await other.close()

    asyncio.run(searched())


@pytest.mark.req("C9", "G6")
def test_a_damaged_entry_without_words_is_a_damaged_hit_and_wrong_words_are_found() -> None:
    async def searched() -> None:
        store = await connect(fresh_server())
        await store.create(session(), [message(f"m{n}", words=["w", f"n{n}"]) for n in range(9)])
        await store._server.ask("HSET", session_key(HERE, b"body"), "1:5", "x")
        for _ in range(2):
            hits = await store.search(HERE.tenant, ["n2"], user=None, before=None, limit=99)
            assert [(hit.row.id, hit.row.damaged) for hit in hits] == [("m4", True), ("m2", False)]
        assert [finding.id async for finding in store.verify(repair=False)] == ["m4"]
        words = await store._server.ask("HGET", session_key(HERE, b"word"), "1:3")
        await store._server.ask("HSET", session_key(HERE, b"word"), "1:3", words + b"n7\n")
        assert await ids(store, "n7") == ["m7", "m4", "m2"]
        found = [(one.id, one.fault) async for one in store.verify(repair=False)]
        assert ("m2", "its words are wrong") in found
        assert len(found) == 2
        await store.close()

    asyncio.run(searched())
