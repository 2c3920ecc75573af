"""Every engine that Turnstate ships keeps the promises of the contract, and so can one of another package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import execute, fresh_url

from turnstate.memory import MemoryEngine, open_engine
from turnstate.stores.postgres.server import target
from turnstate.testing import MemoryContract

pytestmark = pytest.mark.req("F1", "F4", "F5")


class TestSqliteMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self, tmp_path: Path) -> None:
        self.name = f"builtin:{tmp_path / 'memory.db'}"

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)


class TestPostgresMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        with fresh_url() as url:
            self.name = f"builtin:{url}"
            yield
            execute(f"DROP SCHEMA IF EXISTS {target(url).schema}_memory CASCADE")

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)


class TestJsonlMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def fresh(self, tmp_path: Path) -> None:
        self.name = f"jsonl:{tmp_path / 'memory'}"

    async def connect(self) -> MemoryEngine:
        return await open_engine(self.name)
