"""Whatever is asked, and in whatever order: all stores give the same answers."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.broken_stores import (
    BROKEN,
    ComparesAndThenSets,
    ForgetsKeysByAnyClock,
    HandsOutItsOwnMeta,
    PausesInTheMiddle,
    SkipsWhatIsCommittedLate,
)
from tests.contract.store_operations import ADDRESSES, PARCELS, Operation, Run, sequence
from tests.harness.postgres_server import executed, fresh_url
from tests.harness.thoroughness import runs
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate.errors import AlreadyExists, Busy, NotFound, TurnstateError
from turnstate.stores import connect, postgres, redis
from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address, SessionRow
from turnstate.testing.contract.scenes import HERE, NOW, change, dump, message, session

UNSEEN = (  # not by one client that takes turns and trusts its clock
    ComparesAndThenSets,
    ForgetsKeysByAnyClock,
    HandsOutItsOwnMeta,
    PausesInTheMiddle,
    SkipsWhatIsCommittedLate,
)
Opener = Callable[[Path], Awaitable[Store]]


async def in_memory(_: Path) -> Store:
    return MemoryStore()


async def in_sqlite(folder: Path) -> Store:
    return await connect(f"sqlite:///{folder / 'agent.db'}")


async def seen(store: Store, at: Address | None) -> SessionRow | None:
    """Return the session that an operation is about, if there is one."""
    try:
        return await store.get(at) if at else None
    except NotFound:
        return None


async def everything(store: Store) -> list[Any]:
    """Return all that a store shows."""
    there = [at for at in ADDRESSES if await seen(store, at)]
    return [[await dump(store, at) for at in there], await store.parcels(limit=10_000)]


async def compared(operations: list[Operation], stores: list[Store]) -> Counter[str]:
    """Perform operations on all stores, claim equal answers, and count what was taken and refused."""
    performers, outcomes = [Run(store) for store in stores], Counter[str]()
    for name, fields in operations:
        about = await seen(stores[0], fields.get("at"))
        first, *others = [await run.perform(name, fields, about) for run in performers]
        for other in others:
            assert other == first, (name, fields)
        refusal = first[0] if isinstance(first, tuple) else first
        outcomes[f"{name} {refusal.__name__}" if isinstance(refusal, type) else name] += 1
    first, *others = [await everything(store) for store in stores]
    for other in others:
        assert other == first
    return outcomes


def agree(operations: list[Operation], *openers: Opener) -> Counter[str]:
    """Perform operations on fresh stores."""

    async def run(folders: list[str]) -> Counter[str]:
        stores = [await opener(Path(folder)) for opener, folder in zip(openers, folders, strict=True)]
        try:
            return await compared(operations, stores)
        finally:
            for store in stores:
                await store.close()

    with tempfile.TemporaryDirectory() as folder:
        folders = [f"{folder}/{n}" for n in range(len(openers))]
        for one in folders:
            os.mkdir(one)
        return asyncio.run(run(folders))


def shortest(operations: list[Operation], differs: Callable[[list[Operation]], bool]) -> list[Operation]:
    """Leave out whatever is not needed for the stores to disagree."""
    at = 0
    while at < len(operations):
        fewer = operations[:at] + operations[at + 1 :]
        if differs(fewer):
            operations = fewer
        else:
            at += 1
    return operations


def differ(operations: list[Operation], *openers: Opener) -> bool:
    """Return whether the stores disagree."""
    try:
        agree(operations, *openers)
    except (AssertionError, TurnstateError):
        return True
    return False


def answers_alike(
    seeds: range, opener: Opener, adapted: Callable[[list[Operation]], list[Operation]] = list
) -> Counter[str]:
    """Compare a store with the memory store, and show the shortest way to a difference."""
    outcomes = Counter[str]()
    for seed in seeds:
        operations = adapted(sequence(seed))
        try:
            outcomes += agree(operations, in_memory, opener)
        except Exception as error:
            few = shortest(operations, lambda fewer: differ(fewer, in_memory, opener))
            shown = "\n".join(map(repr, few))
            raise AssertionError(f"the stores disagree on sequence {seed}, after\n{shown}") from error
    assert min(outcomes[f"commit {name}"] for name in REFUSALS) > 0
    return outcomes


@pytest.mark.req("G3", "G4", "G5", "G6")
def test_sqlite_and_memory_answer_alike(record_property: Callable[[str, object], None]) -> None:
    outcomes = answers_alike(range(runs(12, long=400)), in_sqlite)
    record_property("counted", ("Operations on which the stores agreed", dict(outcomes)))
    assert outcomes["commit"] > 150


@pytest.mark.req("G3", "G4", "G5", "G6")
def test_postgres_and_memory_answer_alike(record_property: Callable[[str, object], None]) -> None:
    with fresh_url() as url:

        async def in_postgres(_: Path) -> Store:
            await executed(f"DROP SCHEMA IF EXISTS {target(url).schema} CASCADE")
            return await postgres.connect(url)

        outcomes = answers_alike(range(40, 40 + runs(8, long=150)), in_postgres)
    record_property("counted", ("Operations on which the stores agreed", dict(outcomes)))
    assert outcomes["commit"] > 100


def with_parcels_of_their_own(operations: list[Operation]) -> list[Operation]:
    """Let ids of parcels name their session, as those of Turnstate do: Redis tells them apart only so."""
    names = [f"{id} {at.tenant} {at.session}" for at in ADDRESSES for id in PARCELS]
    changed = list[Operation]()
    for n, (name, fields) in enumerate(operations):
        if name == "commit":
            at = fields["at"]
            fields = fields | {"parcels": [f"{id} {at.tenant} {at.session}" for id in fields["parcels"]]}
        elif fields.get("id") in PARCELS:
            fields = fields | {"id": names[n % 2 * 3 + PARCELS.index(fields["id"])]}
        changed.append((name, fields))
    return changed


@pytest.mark.req("G3", "G4", "G5", "G6")
@pytest.mark.parametrize("fresh", [fresh_server, fresh_cluster])
def test_redis_and_memory_answer_alike(
    fresh: Callable[[], str], record_property: Callable[[str, object], None]
) -> None:
    async def in_redis(_: Path) -> Store:
        return await redis.connect(fresh())

    outcomes = answers_alike(range(60, 60 + runs(8, long=150)), in_redis, with_parcels_of_their_own)
    record_property("counted", ("Operations on which the stores agreed", dict(outcomes)))
    assert outcomes["commit"] > 100


REFUSALS = "NotFound EpochEnded KeyReused Fenced Busy Conflict AlreadyExists InputError".split()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_all_stores_refuse_in_the_same_words(kind: str, tmp_path: Path) -> None:
    async def scene(store: Store) -> None:
        taken = f"session {HERE.session} already has an entry first"
        with pytest.raises(AlreadyExists, match=taken):
            await store.create(session(), [message("first"), message("first")])
        await store.create(session(), [message("first")])
        with pytest.raises(AlreadyExists, match=taken):
            await store.commit(change(message("first")))
        await store.acquire(HERE, holder="w1", until=NOW + 2_500, now=NOW)
        leased = (
            rf"session {HERE.session} is leased by w1 for 1\.5 s more; wait, or take over when it expires"
        )
        with pytest.raises(Busy, match=leased):
            await store.acquire(HERE, holder="w2", until=NOW + 9_000, now=NOW + 1_000)
        with pytest.raises(Busy, match=leased):
            await store.commit(change(message("second"), now=NOW + 1_000))

    async def run(url: str) -> None:
        store = await connect(url)
        try:
            await scene(store)
        finally:
            await store.close()

    if kind == "postgres":
        with fresh_url() as url:
            asyncio.run(run(url))
    else:
        urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'agent.db'}"}
        asyncio.run(run(urls.get(kind) or fresh_server()))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.__name__) for kind in BROKEN if kind not in UNSEEN]
)
def test_a_planted_bug_makes_a_difference(kind: type[MemoryStore]) -> None:
    async def in_broken(_: Path) -> Store:
        return kind()

    assert any(differ(sequence(seed), in_memory, in_broken) for seed in range(200))
