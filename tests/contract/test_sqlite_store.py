"""The SQLite store keeps the promises of every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstate.stores import connect
from turnstate.stores.port import Store
from turnstate.testing import StoreContract


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def fresh(self, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path / 'agent.db'}"

    async def connect(self) -> Store:
        return await connect(self.url)
