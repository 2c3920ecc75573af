"""Real servers for the benchmarks: PostgreSQL and Valkey, started for one run and removed after it.

They are the servers of the tests, on sockets of this machine, with their files on a disk if possible.
``TEST_PG_URL`` and ``TEST_REDIS_URL`` name other servers: PostgreSQL then gets a database for the run, and
the database of the Redis server must be empty and is emptied afterwards.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from redis import Redis

from .peer_process import ROOT, PeerMissing

SERVERS = ROOT / "tests" / "harness"
ON_DISK = "/var/tmp"  # survives a restart, so it is not in memory, as /tmp may be
ALWAYS, EVERYSEC = "always", "everysec"


def folder() -> Path:
    """Return the folder for the files of the servers."""
    return Path(ON_DISK if os.access(ON_DISK, os.W_OK) else tempfile.gettempdir())


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of an empty database."""
    if url := os.environ.get("TEST_PG_URL"):
        with _database(url) as fresh:
            yield fresh
        return
    server = _started("postgres_server", "PostgresServer")
    try:
        with _database(server.url()) as fresh:
            yield fresh
    finally:
        server.remove()


@contextmanager
def valkey(syncs: str) -> Iterator[str]:
    """Yield the URL of an empty server that syncs its append-only file ``always`` or ``everysec``.

    A server that ``TEST_REDIS_URL`` names is used as it is.
    """
    if url := os.environ.get("TEST_REDIS_URL"):
        with _emptied(url):
            yield url
        return
    server = _started("valkey_server", "Valkey", ("--appendonly", "yes", "--appendfsync", syncs))
    try:
        yield server.url
    finally:
        server.stop()


def redis_is_named() -> bool:
    """True if TEST_REDIS_URL names a server, whose settings are used as they are."""
    return "TEST_REDIS_URL" in os.environ


def plain(url: str) -> str:
    """Return the URL of a Redis server in the form that the client library accepts."""
    return url.replace("redis+unix://", "unix://")


def _started(module: str, name: str, options: Sequence[str] = ()) -> Any:
    """Start a server of the tests, with its files on a disk."""
    if not SERVERS.is_dir():
        raise PeerMissing("the servers of the tests are not here; set TEST_PG_URL and TEST_REDIS_URL")
    tempfile.tempdir, before = str(folder()), tempfile.tempdir
    try:
        return getattr(import_module(f"tests.harness.{module}"), name)(*options)
    finally:
        tempfile.tempdir = before


@contextmanager
def _database(url: str) -> Iterator[str]:
    name = f"turnstate_bench_{os.getpid()}"
    asyncio.run(_execute(url, f"CREATE DATABASE {name}"))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        asyncio.run(_execute(url, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def _emptied(url: str) -> Iterator[None]:
    with Redis.from_url(plain(url)) as client:
        if client.dbsize():
            raise PeerMissing(
                "the database of TEST_REDIS_URL is not empty; name one that the bench may empty"
            )
        try:
            yield
        finally:
            client.flushdb()
