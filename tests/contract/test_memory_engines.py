"""Every engine that Turnstate ships keeps the promises of the contract, and so can one of another package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import execute, fresh_url

from turnstate.memory import MemoryEngine, User, open_engine
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


def documented_engine() -> dict[str, Any]:
    """Return the names that the page on memory defines: an engine of another package, and its contract."""
    page = (Path(__file__).parents[2] / "docs/memory.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"User": User}
    for block in blocks[-2:]:
        exec(block, names)
    return names


class TestEngineOfAnotherPackage(MemoryContract):
    """The engine that the documentation shows keeps the promises, too."""

    def setup_method(self) -> None:
        self.engine = documented_engine()["Questions"]()

    async def connect(self) -> MemoryEngine:
        engine: MemoryEngine = self.engine
        return engine
