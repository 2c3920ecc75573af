"""Empty stores of every kind that processes can share, on real servers.

In the long version the servers sync every commit. In the quick version they do not wait for the disk: a
race or a stopped process cannot tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.harness.postgres_server import fresh_url
from tests.harness.thoroughness import LONG
from tests.harness.valkey_server import Valkey, fresh_cluster, fresh_server

KINDS = ("sqlite", "postgres", "valkey", "cluster")
IMPORT_KINDS = KINDS if LONG else KINDS[:-1]  # a Cluster runs the scripts of a single server
PLANTED_KINDS = KINDS if LONG else ("sqlite", "valkey")  # for bugs that are planted above the store
SYNCED = ("--appendonly", "yes", "--appendfsync", "always")


@contextmanager
def empty_store(kind: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store; a file is created in the folder."""
    match kind:
        case "sqlite":
            yield f"sqlite:///{folder}/agent.db"
        case "postgres":
            with fresh_url(synchronous_commit="on" if LONG else "off") as url:
                yield url
        case "valkey":
            yield _synced_server() if LONG else fresh_server()
        case "cluster":
            yield fresh_cluster()
        case _:
            raise AssertionError(kind)


def _synced_server() -> str:
    server = _server()
    server.ask("FLUSHALL")
    return server.url


@cache
def _server() -> Valkey:
    return Valkey(*SYNCED)


def named(url: str) -> str:
    """Return the name of the kind of a store, for the summary."""
    scheme = url.partition(":")[0]
    if "cluster" in scheme:
        return "a Cluster"
    return "SQLite" if scheme == "sqlite" else "PostgreSQL" if scheme.startswith("postgres") else "Valkey"
