"""Schemas, proxies and sessions for faults of PostgreSQL, and the check after a fault."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.postgres_writers import USER
from tests.faults.promises import Promises
from tests.harness.postgres_proxy import Proxy
from tests.harness.postgres_server import PostgresServer, executed, local_server
from turnstate.session.manager import SessionManager
from turnstate.stores.postgres import search
from turnstate.stores.values import Span

END = 2**60


@asynccontextmanager
async def schema() -> AsyncIterator[str]:
    """Yield the name of a new schema, and drop it afterwards."""
    name = f"faults_{secrets.token_hex(4)}"
    try:
        yield name
    finally:
        await executed(f"DROP SCHEMA IF EXISTS {name} CASCADE", url=local_server().url())


@asynccontextmanager
async def proxied() -> AsyncIterator[Proxy]:
    """Yield a proxy to the server; nothing is indexed in the background, since requests are counted."""
    with (
        pytest.MonkeyPatch.context() as patched,
        TemporaryDirectory(prefix="turnstate-") as folder,
    ):
        patched.setattr(search, "IDLE", 3_600)
        patched.setattr(search, "BUSY", 3_600)
        async with Proxy(Path(folder), local_server().folder) as proxy:
            yield proxy


def children(server: PostgresServer) -> list[int]:
    """Return the child processes of a server."""
    assert server.process is not None
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def create_sessions(url: str, count: int) -> list[str]:
    """Create sessions, and return their ids."""
    async with await SessionManager.open(url) as sessions:
        return [(await sessions.create(user=USER)).id for _ in range(count)]


async def broken(url: str, ids: Sequence[str], promises: Promises) -> list[str]:
    """Open the store again, and return everything that is wrong with its sessions."""
    stored, wrong = list[str](), list[str]()
    async with await SessionManager.open(url) as sessions:
        for id in ids:
            session = await sessions.open(id, user=USER)
            stored += [str(message.content) for message in await session.messages()]
            rows = await sessions.store.read(session._row.address, Span(1, 1, END))
            if [row.seq for row in rows] != list(range(1, session._row.seq + 1)):
                wrong.append(f"gap: session {id}")
        wrong += [f"verify: {finding.fault}" async for finding in sessions.store.verify(repair=False)]
    return wrong + promises.broken_by(stored)
