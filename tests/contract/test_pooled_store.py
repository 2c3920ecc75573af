"""PostgreSQL behind PgBouncer keeps the promises of every store and memory engine.

This takes half a minute, so only `make faults` runs it; `make test` has `test_postgres_pooler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from pgbouncer_server import PgBouncer, missing, pooled_url
from postgres_server import execute
from test_postgres_store import TABLES
from thoroughness import LONG

from turnstate.memory import MemoryEngine, open_engine
from turnstate.stores.port import Store
from turnstate.stores.postgres import connect
from turnstate.stores.postgres.server import target
from turnstate.testing import MemoryContract, StoreContract

pytestmark = pytest.mark.skipif(not LONG, reason="`make faults` runs the contract through a pooler")


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


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestPooledStore(StoreContract):
    @pytest.fixture(autouse=True)
    def fresh(self, place: str) -> None:
        self.url, schema = place, target(place).schema
        execute(f"TRUNCATE {', '.join(f'{schema}.{name}' for name in TABLES)}")

    async def connect(self) -> Store:
        return await connect(self.url)


class TestPooledMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self, place: str) -> Iterator[None]:
        self.name = f"builtin:{place}"
        yield
        execute(f"DROP SCHEMA IF EXISTS {target(place).schema}_memory CASCADE")

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)
