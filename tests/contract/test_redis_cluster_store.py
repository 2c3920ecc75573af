"""The Redis store keeps the promises of every store, on a real Cluster of three masters."""

from __future__ import annotations

import pytest

from tests.harness.valkey_server import fresh_cluster
from turnstate.stores.port import Store
from turnstate.stores.redis import connect
from turnstate.testing import StoreContract


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestRedisClusterStore(StoreContract):
    repairs = False

    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        self.url = fresh_cluster()

    async def connect(self) -> Store:
        return await connect(self.url)
