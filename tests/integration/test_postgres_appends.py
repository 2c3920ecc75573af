"""Appends of one moment share a call to PostgreSQL, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from tests.harness.postgres_proxy import Proxy
from tests.harness.postgres_server import executed, fresh_url, local_server
from tests.harness.thoroughness import SEED
from turnstate.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    EpochEnded,
    Fenced,
    InputError,
    KeyReused,
    NotFound,
    StoreUnavailable,
    TurnstateError,
)
from turnstate.stores import batches, memory
from turnstate.stores.port import Store
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.connections import Connections
from turnstate.stores.postgres.server import target
from turnstate.stores.values import KEY_LIFE, Address, Change, Key, Position, Receipt, Span
from turnstate.testing.contract.scenes import HERE, NOW, change, message, note, session

SESSIONS = [Address(HERE.tenant, f"s{n}") for n in range(24)]


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_url() as url:
        yield url


@pytest.fixture(autouse=True)
def unindexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index nothing in the background."""
    monkeypatch.setattr(search, "IDLE", 3_600)
    monkeypatch.setattr(search, "BUSY", 3_600)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the statements that write, in their order."""
    names, real = list[str](), Connections.write

    async def write(self: Connections, name: str, /, **given: Any) -> Any:
        names.append(name)
        return await real(self, name, **given)

    monkeypatch.setattr(Connections, "write", write)
    return names


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await connect(url)
    try:
        for at in SESSIONS:
            await store.create(session(at.session))
        yield store
    finally:
        await store.close()


async def ids(store: PostgresStore, at: Address) -> list[str]:
    return [row.id for row in await store.read(at, Span(1, 1, 99))]


@pytest.mark.req("A6", "G5")
def test_appends_of_one_moment_share_a_call_and_each_gets_its_receipt(url: str, calls: list[str]) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            calls.clear()
            changes = [
                change(message(f"{n} {m}"), message(f"{n} {m} more"), at=at, key=Key(f"k{m}", b"1"))
                for m in range(3)
                for n, at in enumerate(SESSIONS)
            ]
            receipts = await asyncio.gather(*map(store.commit, changes))
            sent = [name for name in calls if name.startswith("append")]
            assert len(sent) < len(changes) / 4, sent
            for n, at in enumerate(SESSIONS):
                own = [receipt for receipt, one in zip(receipts, changes, strict=True) if one.at == at]
                assert [(one.version, one.first, one.last) for one in own] == [
                    (1, 1, 2),
                    (2, 3, 4),
                    (3, 5, 6),
                ]
                assert await ids(store, at) == [f"{n} {m}{more}" for m in range(3) for more in ("", " more")]
            again = await asyncio.gather(*map(store.commit, changes))
            assert [structs.replace(one, repeated=False) for one in again] == receipts
            assert all(one.repeated for one in again)
            assert [finding async for finding in store.verify(repair=False)] == []

    asyncio.run(scene())


@pytest.mark.req("A6", "G5")
def test_a_refusal_among_them_is_its_own(url: str, calls: list[str]) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            for at in SESSIONS:
                await store.commit(change(message("first"), at=at, key=Key("used", b"1")))
            await store.acquire(SESSIONS[6], holder="other", until=2**50, now=1)
            refused: list[tuple[Change, type[Exception]]] = [
                (change(message("a"), at=SESSIONS[0], epoch=7), EpochEnded),
                (change(message("a"), at=SESSIONS[1], created=7), EpochEnded),
                (change(message("a"), at=SESSIONS[2], key=Key("used", b"2")), KeyReused),
                (change(message("a"), at=SESSIONS[3], fence=7), Fenced),
                (change(message("a"), at=SESSIONS[4], expected_version=7), Conflict),
                (change(message("a"), at=SESSIONS[5], expected_head=Position(1, 7)), Conflict),
                (change(message("a"), at=SESSIONS[6]), Busy),
                (change(message("a"), at=Address(HERE.tenant, "none")), NotFound),
            ]
            poison: list[tuple[Change, type[Exception]]] = [
                (change(message("first"), at=SESSIONS[7]), AlreadyExists),
                (change(message("a"), message("a"), at=SESSIONS[8]), AlreadyExists),
                (change(message("a\0"), at=SESSIONS[9]), InputError),
            ]
            for number, bad in enumerate((refused, refused + poison)):
                good = [change(message(f"good {number}"), at=at) for at in SESSIONS[12:]]
                jobs = [*good, *(one for one, _ in bad)]
                calls.clear()
                outcomes = await asyncio.gather(*map(store.commit, jobs), return_exceptions=True)
                assert "append_all" in calls
                for outcome in outcomes[: len(good)]:
                    assert not isinstance(outcome, BaseException), outcome
                for (_, error), outcome in zip(bad, outcomes[len(good) :], strict=True):
                    assert type(outcome) is error, (error, outcome)
            for at in SESSIONS[:10]:
                assert await ids(store, at) == ["first"]
            for at in SESSIONS[12:]:
                assert await ids(store, at) == ["first", "good 0", "good 1"]

    asyncio.run(scene())


@pytest.mark.req("A6", "G5")
def test_together_or_in_another_store_changes_come_to_the_same(url: str) -> None:
    random = Random(SEED)

    async def scene() -> None:
        async with opened(url) as store:
            other = await memory.connect("memory://")
            for at in SESSIONS:
                await other.create(session(at.session))
            for step in range(40):
                now = NOW + step * 10 + (step > 20) * KEY_LIFE
                for one in (store, other) if step % 4 == 0 else ():
                    await one.acquire(SESSIONS[step % 20], holder="other", until=now + 15, now=2**50)
                    if step > 30:
                        await one.commit(change(at=SESSIONS[-step % 7], end="over", now=now + 99))
                jobs = [conditional(random, step, at, now) for at in SESSIONS if random.random() < 0.8]
                together = await asyncio.gather(*map(store.commit, jobs), return_exceptions=True)
                alone = [await outcome(other, job) for job in jobs]
                assert list(map(told, together)) == list(map(told, alone)), step
            for at in SESSIONS:
                assert await store.read(at, Span(1, 1, 999)) == await other.read(at, Span(1, 1, 999))
                assert await store.get(at) == await other.get(at)
            assert [finding async for finding in store.verify(repair=False)] == []

    asyncio.run(scene())


def conditional(random: Random, step: int, at: Address, now: int) -> Change:
    """Return a change with conditions that are often met."""
    records = [
        (message if random.random() < 0.7 else note)(f"{step} {n}", tokens=random.randrange(9))
        for n in range(random.randrange(1, 4))
    ]
    sometimes: dict[str, Any] = {
        "created": random.choice((session("s").created, 7)),
        "epoch": random.choice((1, 1, 1, 2)),
        "key": Key(f"k{random.randrange(6)}", random.choice((b"1", b"2"))),
        "fence": random.choice((0, 1, 2)),
        "expected_version": random.randrange(step + 1),
        "expected_head": Position(1, random.randrange(step + 1)),
    }
    given = {name: value for name, value in sometimes.items() if random.random() < 0.2}
    return change(*records, at=at, now=now, **given)


async def outcome(store: Store, job: Change) -> Receipt | BaseException:
    try:
        return await store.commit(job)
    except TurnstateError as error:
        return error


def told(outcome: Receipt | BaseException) -> object:
    return outcome if isinstance(outcome, Receipt) else (type(outcome), str(outcome))


def test_appends_with_keys_forget_old_ones(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            for age, name in ((0, "old"), (KEY_LIFE, "new")):
                jobs = [change(message(name), at=at, key=Key(name, b"1"), now=NOW + age) for at in SESSIONS]
                await asyncio.gather(*map(store.commit, jobs))
            names = await executed(f"SELECT name FROM {target(url).schema}.key")
            assert [name for (name,) in names] == ["new"] * len(SESSIONS)

    asyncio.run(scene())


def test_keys_that_are_too_old_can_be_used_again_by_many_at_once(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            for digest, age in ((b"1", 0), (b"2", KEY_LIFE), (b"2", KEY_LIFE + 1)):
                jobs = [
                    change(message(f"{age}"), at=at, key=Key("k", digest), now=NOW + age) for at in SESSIONS
                ]
                receipts = await asyncio.gather(*map(store.commit, jobs))
                assert {receipt.repeated for receipt in receipts} == {age > KEY_LIFE}
                assert {receipt.last for receipt in receipts} == {1 if age == 0 else 2}

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_a_session_that_is_locked_holds_up_no_other(url: str) -> None:
    async def scene() -> None:
        async with opened(url) as store:
            stranger = await asyncpg.connect(target(url).dsn)
            holding = stranger.transaction()
            await holding.start()
            await stranger.execute(f"SELECT FROM {target(url).schema}.session WHERE id = 's3' FOR UPDATE")
            jobs = {at: asyncio.create_task(store.commit(change(message("a"), at=at))) for at in SESSIONS}
            others = [job for at, job in jobs.items() if at != SESSIONS[3]]
            await asyncio.wait_for(asyncio.gather(*others), 60)
            await asyncio.wait_for(store.commit(change(message("b"), at=SESSIONS[4])), 60)
            assert not jobs[SESSIONS[3]].done()
            await holding.rollback()
            await stranger.close()
            await jobs[SESSIONS[3]]
            assert await ids(store, SESSIONS[3]) == ["a"]

    asyncio.run(scene())


@pytest.mark.req("G5")
def test_after_a_lost_answer_changes_with_keys_are_sent_again_and_the_others_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "FEW", len(SESSIONS))  # all in one call
    server, schema = local_server(), "lost_together"

    async def scene(folder: Path) -> None:
        async with Proxy(folder, server.folder) as proxy, opened(proxy.url(schema=schema)) as store:
            store._appends.batches._several = True  # so that the first one waits for the others
            await asyncio.gather(*(store.commit(change(message("first"), at=at)) for at in SESSIONS))
            keyed = [change(message("a"), at=at, key=Key("k", b"1")) for at in SESSIONS[::2]]
            others = [change(message("a"), at=at) for at in SESSIONS[1::2]]
            proxy.lose_next_answer()
            found = await asyncio.gather(*map(store.commit, keyed + others), return_exceptions=True)
            receipts, errors = found[: len(keyed)], found[len(keyed) :]
            assert all(isinstance(one, Receipt) and one.repeated and one.last == 2 for one in receipts)
            assert all(isinstance(one, StoreUnavailable) and "unknown" in str(one) for one in errors)
            assert len({id(one) for one in errors}) == len(others)
            assert proxy.lost == 1

    with TemporaryDirectory(prefix="turnstate-") as folder:
        asyncio.run(scene(Path(folder)))
    asyncio.run(executed(f"DROP SCHEMA {schema} CASCADE", url=server.url()))


@pytest.mark.req("G5")
def test_callers_who_give_up_harm_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "TOGETHER", 5)

    async def scene() -> None:
        async with opened(url) as store:
            for turns in range(12):
                jobs = [
                    asyncio.create_task(store.commit(change(message(f"{turns} {n}"), at=at)))
                    for n, at in enumerate(SESSIONS)
                ]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for job in jobs[:: 2 + turns % 3]:
                    job.cancel()
                outcomes = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 60)
                for n, outcome in enumerate(outcomes):
                    if isinstance(outcome, asyncio.CancelledError):
                        assert n % (2 + turns % 3) == 0
                    else:
                        assert not isinstance(outcome, BaseException), outcome
                        assert f"{turns} {n}" in await ids(store, SESSIONS[n])
            assert (store._appends.batches._calls, store._appends.batches._busy) == (0, set())

    asyncio.run(scene())
