"""A process that is killed while it creates the schema of a PostgreSQL store leaves nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from tests.harness.postgres_server import execute, fresh_url
from turnstate.stores.postgres import connect
from turnstate.stores.postgres.server import target
from turnstate.testing.contract.scenes import session

MIGRATION_WITHOUT_END = """
import asyncio, sys
from turnstate.stores.postgres import connect, connections
real = connections.migrations
connections.migrations = lambda schema: (*real(schema), "SELECT pg_sleep(1000)")
asyncio.run(connect(sys.argv[1]))
"""


async def usable(url: str) -> bool:
    store = await connect(url)
    try:
        await store.create(session())
        return not [finding async for finding in store.verify(repair=False)]
    finally:
        await store.close()


@pytest.mark.req("G3", "G6")
def test_a_process_killed_in_a_migration_leaves_nothing() -> None:
    with fresh_url() as url:
        worker = subprocess.Popen([sys.executable, "-c", MIGRATION_WITHOUT_END, url])
        migrating = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(1000)'"
        while not (pids := execute(migrating)):
            assert worker.poll() is None
            time.sleep(0.01)
        worker.kill()
        worker.wait()
        execute(f"SELECT pg_terminate_backend({pids[0][0]}, 10000)")
        assert execute(f"SELECT to_regnamespace('{target(url).schema}')::text") == [(None,)]
        assert asyncio.run(usable(url))
