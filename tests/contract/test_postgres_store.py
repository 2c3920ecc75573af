"""The PostgreSQL store keeps the promises of every store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness.postgres_server import execute, fresh_url
from turnstate.stores.port import Store
from turnstate.stores.postgres import connect
from turnstate.stores.postgres.server import target
from turnstate.testing import StoreContract

TABLES = ("session", "branch", "entry", "word", "damaged", "key", "outbox")


async def made(url: str) -> None:
    await (await connect(url)).close()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with fresh_url(synchronous_commit="on") as url:  # who waits for the disk holds locks for longer
        asyncio.run(made(url))
        yield url


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestPostgresStore(StoreContract):
    """The tests share a schema, which is emptied before each: making one takes longer than a test."""

    @pytest.fixture(autouse=True)
    def fresh(self, place: str) -> None:
        self.url, schema = place, target(place).schema
        execute(f"TRUNCATE {', '.join(f'{schema}.{name}' for name in TABLES)}")

    async def connect(self) -> Store:
        return await connect(self.url)
