"""Many writers on PostgreSQL: what the server rolls back is repeated until it is done, once.

Under `repeatable read` and `serializable` the server rolls back all but one of the concurrent writers to a
session; in a deadlock it rolls back one under every level. The caller must not notice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from tests.faults.postgres_faults import broken, create_sessions
from tests.faults.postgres_writers import USER, Writers
from tests.faults.promises import Promises, losses
from tests.harness.postgres_server import PostgresServer
from tests.harness.thoroughness import report, runs
from turnstate.session.manager import SessionManager
from turnstate.stores.postgres import connections

STORES, LANES = 3, 8  # of each store: 24 writers on a few sessions
COMPLAINTS = {"could not serialize": "serialization_failures", "deadlock detected": "deadlocks"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that checks for deadlocks early."""
    made = PostgresServer(deadlock_timeout="300ms")
    yield made
    made.remove()


def complaints(server: PostgresServer) -> Counter[str]:
    """Count what the server wrote into its log."""
    log = (server.folder / "log").read_text()
    return Counter({name: log.count(f"ERROR:  {text}") for text, name in COMPLAINTS.items()})


async def write_from_many_stores(url: str, ids: list[str], writers: Writers, count: int) -> None:
    """Append from several stores at once, so that connections are many and sessions few."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await SessionManager.open(url)) for _ in range(STORES)]
        lanes = [(store, lane) for store in range(STORES) for lane in range(LANES)]
        writing = []
        for number, (store, lane) in enumerate(lanes):
            session = await stores[store].open(ids[lane % len(ids)], user=USER)
            names = [f"s{store}.lane{lane}-{n}" for n in range(number, count, len(lanes))]
            writing.append(writers.write(session, names))
        await asyncio.gather(*writing)


@pytest.mark.req("G5", "G6")
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_racing_writers_are_all_acknowledged_whatever_the_server_rolls_back(
    level: str, server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    count, before = runs(120, long=6_000), complaints(server)
    writers, wrong = asyncio.run(raced(server, level, count))
    counted = complaints(server) - before
    report(
        record_property,
        f"{STORES * LANES} writers under {level}",
        appends=count,
        **counted,
        lost=losses(wrong),
    )
    assert wrong == []
    assert len(writers.promises.acked) == count
    assert (writers.failed, writers.repeated) == (0, 0)
    assert counted["serialization_failures"]


async def raced(server: PostgresServer, level: str, count: int) -> tuple[Writers, list[str]]:
    """Race under an isolation level; return the writers, and what was broken."""
    url = server.url(schema=f"raced_{secrets.token_hex(4)}", default_transaction_isolation=level)
    ids, writers = await create_sessions(url, 2), Writers(Promises())
    await write_from_many_stores(url, ids, writers, count)
    return writers, await broken(url, ids, writers.promises)


def test_a_store_that_reports_a_rollback_to_callers_is_caught(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ROLLED_BACK", ())
    writers, _ = asyncio.run(raced(server, "serializable", 120))
    assert writers.failed


async def crossed(server: PostgresServer, count: int) -> tuple[Writers, list[str]]:
    """Cause deadlocks: lock from outside what an append needs last, then what it holds."""
    schema, writers = f"crossed_{secrets.token_hex(4)}", Writers(Promises())
    url = server.url(schema=schema)
    ids = await create_sessions(url, 1)
    stranger = await asyncpg.connect(server.url())
    try:
        await stranger.execute("SET deadlock_timeout = '5s'")  # the other side finds it first
        async with await SessionManager.open(url) as sessions:
            session = await sessions.open(ids[0], user=USER)
            for name in (f"key-{number}" for number in range(count)):
                await cross(stranger, schema, name, writers.write(session, [name]))
    finally:
        await stranger.close()
    return writers, await broken(url, ids, writers.promises)


async def cross(stranger: Any, schema: str, name: str, append: Coroutine[Any, Any, None]) -> None:
    """Lock the key of an append, wait until the append holds the session, and request the session."""
    transaction = stranger.transaction()
    await transaction.start()
    columns = "name, session, digest, epoch, version, branch, first, last, created"
    values = f"'{name}', key, '', 1, 1, 1, 1, 1, 1 FROM {schema}.session"
    await stranger.execute(f"INSERT INTO {schema}.key ({columns}) SELECT {values}")
    writing = asyncio.create_task(append)
    while not await stranger.fetch("SELECT FROM pg_locks WHERE NOT granted"):
        await asyncio.sleep(0.01)
    await stranger.execute(f"SELECT FROM {schema}.session FOR UPDATE")
    await transaction.rollback()
    await writing


@pytest.mark.req("G5", "G6")
def test_an_append_that_a_deadlock_rolled_back_is_made_once(
    server: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    count, before = runs(2, long=100), complaints(server)
    writers, wrong = asyncio.run(crossed(server, count))
    counted = complaints(server) - before
    report(record_property, "deadlocks with a stranger", appends=count, **counted, lost=losses(wrong))
    assert wrong == []
    assert (writers.failed, writers.repeated) == (0, 0)
    assert counted["deadlocks"] >= count  # the server may choose us more than once
