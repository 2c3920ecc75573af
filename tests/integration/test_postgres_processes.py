"""Many processes on one PostgreSQL store: they open it at once, and nothing that they append is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from postgres_server import execute, fresh_url
from postgres_worker import AT

from holdfast.stores.postgres import connect
from holdfast.stores.postgres.target import target
from holdfast.stores.values import Row, SessionRow, Span

THOROUGH = int(os.environ.get("HOLDFAST_THOROUGH", "1"))
WORKER = Path(__file__).with_name("postgres_worker.py")
PROCESSES, APPENDS = 8, 25 * THOROUGH
PATIENCE = 120


def started(url: str, *job: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), url, *job]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes)  # type: ignore[call-overload, no-any-return]


def let_go(workers: list[subprocess.Popen[str]]) -> None:
    """Wait until all are ready, and let them begin together."""
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


async def made(url: str) -> None:
    store = await connect(url)
    row = SessionRow(
        tenant=AT.tenant,
        id=AT.session,
        user=None,
        title="",
        tags=(),
        counter="c",
        meta={},
        created=0,
        active=0,
    )
    await store.create(row)
    await store.close()


async def kept(url: str) -> list[Row]:
    store = await connect(url)
    try:
        return await store.read(AT, Span(1, 1, 2**31))
    finally:
        await store.close()


@pytest.mark.req("G3", "G5", "G6")
def test_what_eight_processes_append_is_there_in_order_once() -> None:
    with fresh_url(synchronous_commit="on") as url:
        asyncio.run(made(url))
        workers = [started(url, "append", f"w{n}", str(APPENDS)) for n in range(PROCESSES)]
        let_go(workers)
        told = [worker.communicate(timeout=PATIENCE)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * PROCESSES
        rows = asyncio.run(kept(url))
    acknowledged = sorted(line.split(" ", 1) for output in told for line in output.splitlines())
    assert [row.seq for row in rows] == list(range(1, PROCESSES * APPENDS + 1))
    assert sorted([str(row.seq), row.id] for row in rows) == acknowledged
    assert not any(row.damaged for row in rows)
    assert rows[-1].total == sum(row.tokens for row in rows)


@pytest.mark.req("G3")
def test_eight_processes_open_an_empty_database_at_once() -> None:
    with fresh_url() as url:
        workers = [started(url, "append", f"w{n}", "0") for n in range(PROCESSES)]
        let_go(workers)
        for worker in workers:
            worker.communicate(timeout=PATIENCE)
        assert [worker.returncode for worker in workers] == [0] * PROCESSES
        assert asyncio.run(kept_nothing(url))


async def kept_nothing(url: str) -> bool:
    store = await connect(url)
    try:
        return not [finding async for finding in store.verify(repair=False)]
    finally:
        await store.close()


@pytest.mark.req("G3", "G6")
def test_a_process_killed_in_a_migration_leaves_nothing() -> None:
    with fresh_url() as url:
        schema = target(url).schema
        worker = started(url, "migrate")
        let_go([worker])
        migrating = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(1000)'"
        while not (pids := execute(migrating)):
            assert worker.poll() is None
            time.sleep(0.01)
        worker.kill()
        worker.communicate()
        execute(f"SELECT pg_terminate_backend({pids[0][0]}, 10000)")
        assert execute(f"SELECT to_regnamespace('{schema}')::text") == [(None,)]
        asyncio.run(made(url))
        assert asyncio.run(kept(url)) == []
