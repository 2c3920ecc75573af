"""Stores that cannot be used, for the commands to meet: each gives a URL, and what should be said of it.

What is kept there is looked at before and afterwards: a command that failed has made nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tests.acceptance.cli_program import environment, turnstate
from tests.harness.postgres_server import GUARDED, PostgresServer, execute, fresh_url, local_server
from tests.harness.valkey_server import Valkey, empty_server, free_port, fresh_cluster

SECRET = "s3cr3t-p4ss"
ARCHIVE = """\
{"turnstate":"archive","version":1}
{"type":"session","id":"a","counter":"o200k_base","created":1,"active":1,"version":0}
{"type":"branch","id":1,"created":1,"operation":"create","entries":0}
{"type":"end","sessions":1}
"""
SCHEMA = f"untouched_{os.getpid()}"
TABLES = """
    SELECT n.nspname::text, c.relname::text, c.xmin::text
    FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid
    WHERE n.nspname NOT LIKE 'pg_%' ORDER BY 1, 2
"""


class Trouble(NamedTuple):
    """A store that cannot be used."""

    url: str
    said: str
    kept: Callable[[], Any] = list
    variables: tuple[tuple[str, str], ...] = ()  # of the environment


@contextmanager
def connection_refused(scheme: str, _folder: Path) -> Iterator[Trouble]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield Trouble(_tcp(scheme, free.getsockname()[1]), "cannot be reached (")


@contextmanager
def server_is_silent(scheme: str, _folder: Path) -> Iterator[Trouble]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield Trouble(_tcp(scheme, silent.getsockname()[1]), "cannot be reached (no")


@contextmanager
def the_driver_is_missing(scheme: str, folder: Path) -> Iterator[Trouble]:
    module, extra = {"postgresql": ("asyncpg", "postgres")}.get(scheme, ("redis", "redis"))
    (folder / f"{module}.py").write_text(
        f"raise ModuleNotFoundError('there is no {module}', name='{module}')"
    )
    path = os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
    yield Trouble(_tcp(scheme, 1), f"pip install 'turnstate[{extra}]'", variables=(("PYTHONPATH", path),))


@contextmanager
def postgres_refuses_the_password(_folder: Path) -> Iterator[Trouble]:
    server = local_server()
    made = f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'another'"
    execute(f"DROP ROLE IF EXISTS {GUARDED}", made, url=server.url())
    url = server.url(user=f"{GUARDED}:{SECRET}", schema=SCHEMA)
    yield Trouble(url, "refuses this user or password", lambda: execute(TABLES, url=server.url()))


@contextmanager
def postgres_has_no_such_database(_folder: Path) -> Iterator[Trouble]:
    server = local_server()
    names = "SELECT datname::text FROM pg_database ORDER BY 1"
    yield Trouble(server.url("nowhere"), "does not exist", lambda: execute(names, url=server.url()))


@contextmanager
def postgres_is_set_read_only(_folder: Path) -> Iterator[Trouble]:
    server = local_server()
    url = server.url(default_transaction_read_only="on", schema=SCHEMA)
    yield Trouble(url, "read-only", lambda: execute(TABLES, url=server.url()))


@contextmanager
def postgres_is_a_replica(_folder: Path) -> Iterator[Trouble]:
    server = PostgresServer()
    server.stop()
    replica = PostgresServer(copy_of=server, replica=True)
    try:
        yield Trouble(replica.url(), "is a replica", lambda: execute(TABLES, url=replica.url()))
    finally:
        replica.remove()
        server.remove()


@contextmanager
def postgres_has_a_newer_schema(_folder: Path) -> Iterator[Trouble]:
    with fresh_url(schema=SCHEMA) as url:
        assert turnstate("sessions", "list", "--store", url).code == 0
        execute(f"INSERT INTO {SCHEMA}.migration (number) VALUES (99)")
        try:
            yield Trouble(url, "has schema 99, newer than", lambda: execute(TABLES))
        finally:
            execute(f"DROP SCHEMA {SCHEMA} CASCADE")


@contextmanager
def _valkey(*options: str) -> Iterator[Valkey]:
    server = Valkey(*options, port=free_port())
    try:
        yield server
    finally:
        server.stop()


def _keys(server: Valkey, **login: str) -> Callable[[], Any]:
    return lambda: [(key, server.ask("DUMP", key, **login)) for key in server.ask("KEYS", "*", **login)]


@contextmanager
def valkey_refuses_the_password(_folder: Path) -> Iterator[Trouble]:
    with _valkey("--requirepass", "another") as server:
        kept = _keys(server, password="another")
        yield Trouble(_tcp("redis", server.port), "refuses the user or the password", kept)


@contextmanager
def valkey_has_no_such_database(_folder: Path) -> Iterator[Trouble]:
    server = empty_server()
    yield Trouble(f"{server.url}?db=9999", "no such database", _keys(server))


@contextmanager
def valkey_is_a_replica(_folder: Path) -> Iterator[Trouble]:
    with _valkey() as master, _valkey("--replicaof", f"127.0.0.1 {master.port}") as replica:
        yield Trouble(replica.url, "is a replica", _keys(replica))


@contextmanager
def valkey_has_a_newer_layout(_folder: Path) -> Iterator[Trouble]:
    server = empty_server()
    server.ask("SET", "ts:version", "99")
    yield Trouble(server.url, "has layout 99, newer than", _keys(server))


@contextmanager
def valkey_is_no_cluster(_folder: Path) -> Iterator[Trouble]:
    with _valkey() as server:
        yield Trouble(f"redis+cluster://127.0.0.1:{server.port}", "is not a Cluster", _keys(server))


@contextmanager
def a_cluster_is_no_single_server(_folder: Path) -> Iterator[Trouble]:
    yield Trouble(fresh_cluster().replace("redis+cluster", "redis"), "write redis+cluster://")


@contextmanager
def a_file_has_a_newer_schema(folder: Path) -> Iterator[Trouble]:
    path = folder / "agent.db"
    assert turnstate("import", "-", "--store", f"sqlite:///{path}", stdin=ARCHIVE).code == 0
    db = apsw.Connection(str(path))
    db.pragma("user_version", 99)
    db.close()
    yield Trouble(f"sqlite:///{path}", "has schema 99, newer than", path.read_bytes)


def _tcp(scheme: str, port: int) -> str:
    return f"{scheme}://agent:{SECRET}@127.0.0.1:{port}"
