"""Search in PostgreSQL finds every word exactly, and uses its indexes."""

from __future__ import annotations

import asyncio
from random import Random

import asyncpg
import pytest
from msgspec import structs

from tests.harness.postgres_server import executed, fresh_url
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.rows import LONGEST, query_of, vector
from turnstate.stores.values import Change
from turnstate.testing.contract.scenes import HERE, change, message, session

ODD = "'\"\\:&|!()<>*-%_ \n\tabAé日😀\u2028\x01"


def drawn(rng: Random) -> str:
    return "".join(rng.choices(ODD, k=rng.randint(1, 6)))


async def found(store: PostgresStore, *words: str) -> set[str]:
    hits = await store.search(HERE.tenant, words, user=None, before=None, limit=10_000)
    return {hit.row.id for hit in hits}


@pytest.mark.req("A6", "G6")
def test_an_entry_is_found_by_any_of_its_words_and_by_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(7)
    entries = {f"m{n}": {drawn(rng) for _ in range(rng.randint(1, 8))} for n in range(150)}

    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            await store.create(session())
            words_of = {b"%d" % n: sorted(words) for n, words in enumerate(entries.values())}
            monkeypatch.setattr(search, "entry_words", lambda _, body: words_of[body])
            records = tuple(message(id, body=body) for id, body in zip(entries, words_of, strict=True))
            await store.commit(change(*records))
            for _ in range(300):
                wanted = rng.sample(sorted(rng.choice(list(entries.values()))), 1) + [
                    drawn(rng)
                ] * rng.randint(0, 1)
                holding = {id for id, words in entries.items() if words.issuperset(wanted)}
                assert await found(store, *wanted) == holding, wanted
        finally:
            await store.close()

    with fresh_url() as url:
        asyncio.run(scene(url))


@pytest.mark.req("A6")
def test_what_cannot_be_a_word_is_left_out_and_not_found() -> None:
    for impossible in ("", "a\0b", "\ud800", "x" * (LONGEST + 1)):
        assert vector([impossible]) is None
        assert vector([impossible, "plain"]) == "'plain'"
        assert query_of([impossible], tenant="t", user=None) is None
        assert query_of(["plain", impossible], tenant="t", user=None) is None


@pytest.mark.req("A6")
def test_the_longest_words_that_are_taken_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            await store.create(session())
            longest = ["\U0010ffff" * LONGEST, "'" * LONGEST, "\\" * LONGEST]
            monkeypatch.setattr(search, "entry_words", lambda *_: longest)
            await store.commit(change(message("a")))
            for word in longest:
                assert await found(store, word) == {"a"}
        finally:
            await store.close()

    with fresh_url() as url:
        asyncio.run(scene(url))


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    ("name", "index", "given"),
    [
        (
            "search",
            "word_by_words",
            {
                "words": "'w7' & 'x3'",
                "before": 2**62,
                "tenant": HERE.tenant,
                "user": None,
                "session": None,
                "limit": 9,
            },
        ),
        (
            "read_kinds",
            "entry_by_kind",
            {
                "tenant": "t",
                "session": "s",
                "branch": 1,
                "first": 1,
                "last": 9,
                "limit": 9,
                "kinds": ["cut"],
            },
        ),
        (
            "read_kinds_newest",
            "entry_by_kind",
            {
                "tenant": "t",
                "session": "s",
                "branch": 1,
                "first": 1,
                "last": 99_999,
                "limit": None,
                "kinds": ["cut", "tangent"],
            },
        ),
        ("since", "entry_by_", {"tenant": "t", "session": "s", "after": 0, "limit": 9}),
        (
            "newest",
            "entry_by_kind",
            {"tenant": "t", "session": "s", "branches": [1], "firsts": [1], "lasts": [9], "kinds": ["cut"]},
        ),
        (
            "read",
            "entry_by_place",
            {"tenant": "t", "session": "s", "branch": 1, "first": 1, "last": 9, "limit": 9},
        ),
        ("find", "entry_by_id", {"tenant": "t", "session": "s", "ids": ["a", "b"]}),
        ("unindexed", "word_pkey", {"after": 0, "limit": 9, "size": 99}),
        ("count_unindexed", "entry_pkey", {"limit": 9}),
        ("due_sessions", "session_by_expiry", {"tenant": "t", "now": 1, "limit": 9}),
        ("take", "outbox_by_due", {"now": 1, "until": 9, "tenant": None, "limit": 9}),
    ],
)
def test_a_query_is_answered_by_its_index(name: str, index: str, given: dict[str, object]) -> None:
    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            await store.create(session())
            for n in range(20):
                kinds = ["cut" if m % 9 == 0 else "message" for m in range(50)]
                records = [
                    structs.replace(message(f"{n} {m}", words=(f"w{n}", f"x{m}")), kind=kind)
                    for m, kind in enumerate(kinds)
                ]
                await store.commit(Change(at=HERE, now=1, records=tuple(records)))
            await found(store, "w1")
            query, where = store._connections._queries[name], store._connections.target
            tables = ", ".join(f'"{where.schema}".{table}' for table in ("session", "entry", "word"))
            await executed(f"VACUUM ANALYZE {tables}", url=where.dsn)
            connection = await asyncpg.connect(where.dsn)
            await connection.execute("SET enable_seqscan = off")
            plan = await connection.fetch(f"EXPLAIN {query.sql}", *query.arguments(given))
            await connection.close()
            assert index in "\n".join(line for (line,) in plan)
        finally:
            await store.close()

    with fresh_url() as url:
        asyncio.run(scene(url))


@pytest.mark.req("G3")
@pytest.mark.parametrize("name", ["read_kinds", "read_kinds_newest"])
def test_kinds_are_read_by_their_index_before_there_are_statistics(name: str) -> None:
    async def scene(url: str) -> None:
        store = await connect(url)
        try:
            await store.create(session())
            for n in range(10):
                kinds = ["message" if m % 3 else "usage" for m in range(1_000)]
                records = [structs.replace(message(f"{n} {m}"), kind=kind) for m, kind in enumerate(kinds)]
                await store.commit(Change(at=HERE, now=1, records=tuple(records)))
            query, where = store._connections._queries[name], store._connections.target
            given = {"tenant": HERE.tenant, "session": HERE.session, "branch": 1, "first": 1, "last": 10_000}
            connection = await asyncpg.connect(where.dsn)
            plan = await connection.fetch(
                f"EXPLAIN {query.sql}", *query.arguments(given | {"limit": None, "kinds": ["tangent"]})
            )
            await connection.close()
            assert "entry_by_kind" in "\n".join(line for (line,) in plan)
        finally:
            await store.close()

    with fresh_url() as url:
        asyncio.run(scene(url))
