"""Many processes on one Redis store: nothing that they append is lost or doubled, and all see one order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from redis_worker import AT
from valkey_server import fresh_cluster, fresh_server

from holdfast.stores.redis import connect
from holdfast.stores.values import Row, Span
from holdfast.testing.contract_scenes import END, session

WORKER = Path(__file__).with_name("redis_worker.py")
PROCESSES, APPENDS = 8, 25 * int(os.environ.get("HOLDFAST_THOROUGH", "1"))
PATIENCE = 300


async def made(url: str) -> None:
    store = await connect(url)
    await store.create(session(AT.session, tenant=AT.tenant, idle=5))
    await store.close()


async def kept(url: str) -> list[Row]:
    store = await connect(url)
    try:
        assert [finding async for finding in store.verify(repair=False)] == []
        return await store.read(AT, Span(1, 1, END))
    finally:
        await store.close()


def worked(url: str) -> list[str]:
    """Let all processes append at once, and give what they heard."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    commands = [[sys.executable, str(WORKER), url, f"w{n}", str(APPENDS)] for n in range(PROCESSES)]
    workers = [subprocess.Popen(command, **pipes) for command in commands]  # type: ignore[call-overload]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    heard = [line for worker in workers for line in worker.communicate(timeout=PATIENCE)[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    return heard


@pytest.mark.req("G3", "G5", "G6")
@pytest.mark.parametrize("fresh", [fresh_server, fresh_cluster])
def test_processes_append_to_one_session_and_none_is_lost(
    fresh: Callable[[], str], record_property: Callable[[str, object], None]
) -> None:
    url = fresh()
    asyncio.run(made(url))
    heard = worked(url)
    rows = asyncio.run(kept(url))
    record_property("counted", ("Appends of racing processes", {"kept in one order": len(rows)}))
    assert [row.seq for row in rows] == list(range(1, PROCESSES * APPENDS + 1))
    assert sorted(heard) == sorted(f"{row.seq} {row.id}" for row in rows)
    assert [row.total for row in rows] == [sum(row.tokens for row in rows[: n + 1]) for n in range(len(rows))]
