"""The memory store keeps the promises of every store."""

from __future__ import annotations

import pytest

from turnstate.stores.memory import MemoryStore
from turnstate.stores.port import Store
from turnstate.testing import StoreContract


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestMemoryStore(StoreContract):
    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        self.store = MemoryStore()

    async def connect(self) -> Store:
        return self.store
