"""The PostgreSQL store keeps the promises of every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import fresh_url

from turnstate.stores.port import Store
from turnstate.stores.postgres import connect
from turnstate.testing import StoreContract


@pytest.mark.req("A6", "F3", "G3", "G4", "G5", "G6", "G7", "G8", "G9")
class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        with fresh_url(synchronous_commit="on") as self.url:  # who waits for the disk holds locks for longer
            yield

    async def connect(self) -> Store:
        return await connect(self.url)
