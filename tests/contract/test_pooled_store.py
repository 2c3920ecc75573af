"""PostgreSQL behind PgBouncer keeps the promises of every store and memory engine.

All of it takes half a minute, so `make test` has only those promises that another connection for the next
transaction is likeliest to break; `make faults` has all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.contract.test_postgres_store import TABLES
from tests.harness.pgbouncer_server import PgBouncer, missing, pooled_url
from tests.harness.postgres_server import execute
from tests.harness.thoroughness import LONG
from turnstate.memory import MemoryEngine, open_engine
from turnstate.stores.port import Store
from turnstate.stores.postgres import connect
from turnstate.stores.postgres.server import target
from turnstate.testing import MemoryContract, StoreContract

T = TypeVar("T")
FEW = {
    "test_a_canceled_append_is_there_or_not_and_harms_no_other",
    "test_a_check_of_a_sound_store_finds_nothing_and_changes_nothing",
    "test_a_parcel_is_taken_by_one_worker",
    "test_a_refused_change_affects_no_other",
    "test_a_search_continues_after_its_mark",
    "test_of_fifty_that_append_at_once_none_is_lost",
    "test_of_those_that_use_one_key_one_writes_and_all_hear_of_it",
    "test_of_those_that_want_one_lease_one_gets_it",
    "test_readers_beside_writers_see_whole_changes",
    "test_removing_beside_appending_leaves_nothing_or_everything",
    "test_the_feed_of_a_tenant_has_each_entry_once_and_goes_on_after_any",
    "test_what_was_written_is_there_when_the_store_is_opened_again",
}
FEW_OF_MEMORY = {
    "test_deliveries_at_the_same_time_are_one",
    "test_forgetting_and_delivering_at_the_same_time_brings_nothing_back",
}


def shortened(few: set[str]) -> Callable[[type[T]], type[T]]:
    """Leave only some tests of a contract unless the run is long; a skipped one would look like a pass."""

    def shorten(contract: type[T]) -> type[T]:
        every = {name for name in dir(contract) if name.startswith("test_")}
        assert few < every, few - every
        for name in every - few if not LONG else ():
            setattr(contract, name, None)
        return contract

    return shorten


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    if reason := missing():
        pytest.skip(reason)
    bouncer = PgBouncer()
    with pooled_url(bouncer, "contract") as url:
        asyncio.run(made(url))
        yield url
    bouncer.remove()


async def made(url: str) -> None:
    await (await connect(url)).close()


@shortened(FEW)
@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestPooledStore(StoreContract):
    @pytest.fixture(autouse=True)
    def fresh(self, place: str) -> None:
        self.url, schema = place, target(place).schema
        execute(f"TRUNCATE {', '.join(f'{schema}.{name}' for name in TABLES)}")

    async def connect(self) -> Store:
        return await connect(self.url)


@shortened(FEW_OF_MEMORY)
class TestPooledMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self, place: str) -> Iterator[None]:
        self.name = f"builtin:{place}"
        yield
        execute(f"DROP SCHEMA IF EXISTS {target(place).schema}_memory CASCADE")

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)
