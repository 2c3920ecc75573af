"""Every store that processes share, empty: what is promised of all of them is tried on each.

The servers are real ones. At length they sync every commit, as a careful operator sets them; in the quick
version they do not wait for the disk, which no race and no stopped process can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from postgres_server import fresh_url
from thoroughness import LONG
from valkey_server import Valkey, fresh_cluster, fresh_server

KINDS = ("sqlite", "postgres", "valkey", "cluster")
SYNCED = ("--appendonly", "yes", "--appendfsync", "always")


@contextmanager
def empty_store(kind: str, folder: Path) -> Iterator[str]:
    """Give the URL of a store in which nothing is; a file is made in the folder."""
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
    """Name the kind of a store, for the summary of a run."""
    scheme = url.partition(":")[0]
    if "cluster" in scheme:
        return "a Cluster"
    return "SQLite" if scheme == "sqlite" else "PostgreSQL" if scheme.startswith("postgres") else "Valkey"
