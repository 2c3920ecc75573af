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
from broken_stores import (
    BROKEN,
    ComparesAndThenSets,
    HandsOutItsOwnMeta,
    PausesInTheMiddle,
)
from store_operations import ADDRESSES, Operation, Run, sequence

from holdfast.errors import HoldfastError, NotFound
from holdfast.stores import connect
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Address, SessionRow, Store
from holdfast.testing.contract_scenes import dump

THOROUGH = int(os.environ.get("HOLDFAST_THOROUGH", "1"))
UNSEEN = (ComparesAndThenSets, HandsOutItsOwnMeta, PausesInTheMiddle)  # not by one client that takes turns
Opener = Callable[[Path], Awaitable[Store]]


async def in_memory(_: Path) -> Store:
    return MemoryStore()


async def in_sqlite(folder: Path) -> Store:
    return await connect(f"sqlite:///{folder / 'agent.db'}")


async def seen(store: Store, at: Address | None) -> SessionRow | None:
    """Give the session that an operation is about, if there is one."""
    try:
        return await store.get(at) if at else None
    except NotFound:
        return None


async def everything(store: Store) -> list[Any]:
    """Give all that a store shows."""
    there = [at for at in ADDRESSES if await seen(store, at)]
    return [[await dump(store, at) for at in there], await store.parcels(limit=10_000)]


async def compared(operations: list[Operation], stores: list[Store]) -> Counter[str]:
    """Perform operations on all stores, claim equal answers, and count what was taken and refused."""
    runs, outcomes = [Run(store) for store in stores], Counter[str]()
    for name, fields in operations:
        about = await seen(stores[0], fields.get("at"))
        first, *others = [await run.perform(name, fields, about) for run in runs]
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

    async def played(folders: list[str]) -> Counter[str]:
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
        return asyncio.run(played(folders))


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
    """Tell whether the stores disagree."""
    try:
        agree(operations, *openers)
    except (AssertionError, HoldfastError):
        return True
    return False


@pytest.mark.req("G3", "G4", "G5", "G6")
def test_sqlite_and_memory_answer_alike(record_property: Callable[[str, object], None]) -> None:
    outcomes = Counter[str]()
    for seed in range(40 * THOROUGH):
        operations = sequence(seed)
        try:
            outcomes += agree(operations, in_memory, in_sqlite)
        except Exception as error:
            few = shortest(operations, lambda fewer: differ(fewer, in_memory, in_sqlite))
            shown = "\n".join(map(repr, few))
            raise AssertionError(f"the stores disagree on sequence {seed}, after\n{shown}") from error
    record_property("counted", ("Operations on which the stores agreed", dict(outcomes)))
    assert outcomes["commit"] > 500
    assert min(outcomes[f"commit {name}"] for name in REFUSALS) > 0


REFUSALS = "NotFound EpochEnded KeyReused Fenced Busy Conflict AlreadyExists InputError".split()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.__name__) for kind in BROKEN if kind not in UNSEEN]
)
def test_a_planted_bug_makes_a_difference(kind: type[MemoryStore]) -> None:
    async def in_broken(_: Path) -> Store:
        return kind()

    assert any(differ(sequence(seed), in_memory, in_broken) for seed in range(200))
