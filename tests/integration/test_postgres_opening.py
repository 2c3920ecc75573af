"""A PostgreSQL store that cannot be used is refused at opening with one clear error."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.postgres_server import (
    GUARDED,
    PostgresServer,
    execute,
    fresh_url,
    local_server,
    shared_url,
    with_settings,
)
from turnstate.errors import (
    InputError,
    NewerFormat,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    TurnstateError,
)
from turnstate.stores.postgres import connect, connections
from turnstate.stores.postgres.server import target
from turnstate.stores.values import SessionFilter

SECRET = "s3cr3t-p4ss"


def opened(url: str) -> str:
    """Open a store and close it; return its durability."""

    async def once() -> str:
        store = await connect(url)
        await store.close()
        return store.durability

    return asyncio.run(once())


def schemas(url: str | None = None) -> set[str]:
    return {name for (name,) in execute("SELECT nspname::text FROM pg_namespace", url=url)}


def chain(error: BaseException | None) -> Iterator[str]:
    """Return everything that a traceback would show of an error."""
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.req("G3")
def test_nothing_listens_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"postgresql://u:{SECRET}@127.0.0.1:{free.getsockname()[1]}/db"
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/db cannot be reached") as refusal:
            opened(url)
    assert SECRET not in "".join(chain(refusal.value))


@pytest.mark.req("G3")
def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.CONNECT_PATIENCE < 5
    monkeypatch.setattr(connections, "CONNECT_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/db"
        with pytest.raises(StoreUnavailable, match="no answer in time") as refusal:
            opened(url)
    assert SECRET not in "".join(chain(refusal.value))


@pytest.mark.req("G3")
def test_a_wrong_password_is_refused_and_not_shown() -> None:
    server = local_server()
    execute(
        f"DROP ROLE IF EXISTS {GUARDED}", f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'right'", url=server.url()
    )
    url = server.url(user=f"{GUARDED}:{SECRET}")
    with pytest.raises(StoreUnavailable, match="refuses this user or password") as refusal:
        opened(url)
    assert SECRET not in "".join(chain(refusal.value))


@pytest.mark.req("G3")
def test_a_database_that_is_not_there_is_not_made() -> None:
    url = local_server().url("nowhere")
    with pytest.raises(StoreUnavailable, match="the database does not exist"):
        opened(url)
    names = execute("SELECT datname FROM pg_database", url=local_server().url())
    assert "nowhere" not in {name for (name,) in names}


@pytest.mark.req("G3")
def test_an_unknown_setting_is_told() -> None:
    with pytest.raises(TurnstateError, match="color"):
        opened(with_settings(shared_url(), color="blue"))


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host:port/db",
        "postgresql://[::1/db",
        "postgresql://host/db#x",
        "postgresql://host/db?schema=",
        "postgresql://host/db?schema=pg_catalog",
        "postgresql://host/db?schema=x%22%3Bdrop",
        "postgresql://host/db?sslmode=perhaps",
        "postgresql://host/db?nonsense",
        "postgresql://host/d%00b",
    ],
)
def test_a_url_that_cannot_be_read_is_bad_input(url: str) -> None:
    with pytest.raises(InputError):
        opened(url)


@pytest.mark.req("G3")
def test_what_is_shown_of_a_url_has_no_user_no_password_and_no_settings() -> None:
    for url in (
        f"postgresql://me:{SECRET}@host:1/db?sslmode=require",
        f"postgres://me:{SECRET}@{SECRET}@host:1/db",
        f"postgresql://host:1/db?user=me&password={SECRET}",
    ):
        assert target(url).shown == "PostgreSQL at host:1/db"


@pytest.mark.req("G3")
def test_a_replica_is_refused() -> None:
    server = PostgresServer()
    server.stop()
    replica = PostgresServer(copy_of=server, replica=True)
    try:
        with pytest.raises(StoreUnavailable, match="is a replica"):
            opened(replica.url())
        assert "turnstate" not in schemas(replica.url())
    finally:
        replica.remove()
        server.remove()


@pytest.mark.req("G3")
def test_a_read_only_database_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match="read-only"):
        opened(with_settings(shared_url(), default_transaction_read_only="on", schema="never"))
    assert "never" not in schemas()


@pytest.mark.req("G3")
def test_a_database_of_another_encoding_is_refused() -> None:
    server = local_server()
    execute("DROP DATABASE IF EXISTS latin", url=server.url())
    execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'", url=server.url())
    with pytest.raises(StoreUnavailable, match="encoding LATIN1"):
        opened(server.url("latin"))


@pytest.mark.req("G3")
def test_a_user_without_rights_makes_nothing() -> None:
    server = local_server()
    execute("DROP ROLE IF EXISTS humble", "CREATE ROLE humble LOGIN", url=server.url())
    with pytest.raises(StoreUnavailable, match="may not"):
        opened(server.url(user="humble", schema="humbled"))
    assert "humbled" not in schemas(server.url())


@pytest.mark.req("G3")
def test_a_schema_that_is_there_and_empty_is_used() -> None:
    server = local_server()
    execute(
        "DROP SCHEMA IF EXISTS given CASCADE",
        "DROP ROLE IF EXISTS lodger",
        "CREATE ROLE lodger LOGIN",
        "CREATE SCHEMA given AUTHORIZATION lodger",
        url=server.url(),
    )
    opened(server.url(user="lodger", schema="given"))
    opened(server.url(user="lodger", schema="given"))


@contextmanager
def changed(*statements: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield a store whose schema was changed, and its contents."""
    with fresh_url() as url:
        opened(url)
        schema = target(url).schema
        execute(*(statement.format(schema=schema) for statement in statements))
        yield url, contents(schema)


def contents(schema: str) -> list[Any]:
    return execute(
        "SELECT c.relname::text, c.xmin::text, a.attname::text FROM pg_class c JOIN pg_attribute a "
        f"ON a.attrelid = c.oid WHERE c.relnamespace = '{schema}'::regnamespace ORDER BY 1, 3"
    )


@pytest.mark.req("G3")
def test_a_newer_schema_is_refused_untouched() -> None:
    with changed("INSERT INTO {schema}.migration (number) VALUES (99)") as (url, before):
        with pytest.raises(NewerFormat, match="schema 99"):
            opened(url)
        assert contents(target(url).schema) == before


@pytest.mark.req("G3")
def test_the_schema_of_another_program_is_refused_untouched() -> None:
    with changed("ALTER TABLE {schema}.migration RENAME TO version") as (url, before):
        with pytest.raises(StoreDamaged, match="another program"):
            opened(url)
        assert contents(target(url).schema) == before


@pytest.mark.req("G3")
def test_a_store_without_its_tables_says_so() -> None:
    async def used(url: str) -> None:
        store = await connect(url)
        try:
            await store.page("acme", SessionFilter())
        finally:
            await store.close()

    with (
        changed("DROP TABLE {schema}.session") as (url, _),
        pytest.raises(StoreDamaged, match="does not have the tables"),
    ):
        asyncio.run(used(url))


@pytest.mark.req("G3")
def test_a_closed_store_says_so() -> None:
    async def used(url: str) -> None:
        store = await connect(url)
        await store.close()
        await store.page("acme", SessionFilter())

    with fresh_url() as url, pytest.raises(StoreError, match="is closed"):
        asyncio.run(used(url))


@pytest.mark.req("G3")
def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "asyncpg":
            raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith("turnstate.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StoreUnavailable, match=r"turnstate\[postgres\]"):
        importlib.import_module("turnstate.stores.postgres")


@pytest.mark.req("G3")
def test_an_acknowledgement_is_worth_what_the_server_is_set_to() -> None:
    with fresh_url(synchronous_commit="on") as url:
        assert opened(url) == "fsync"
    for waits in ("local", "remote_write", "remote_apply"):
        with fresh_url(synchronous_commit=waits) as url:
            assert opened(url) == "fsync"
    with fresh_url(synchronous_commit="off") as url:
        assert opened(url) == "best_effort"


@pytest.mark.req("G3")
def test_a_server_that_is_set_to_less_than_was_asked_for_is_refused() -> None:
    with fresh_url(synchronous_commit="on") as url:
        assert opened(f"{url}{'&' if '?' in url else '?'}durability=fsync") == "fsync"
    with fresh_url(synchronous_commit="off") as url:
        with pytest.raises(
            StoreUnavailable, match="cannot promise durability=fsync: synchronous_commit is off"
        ):
            opened(f"{url}{'&' if '?' in url else '?'}durability=fsync")
        with pytest.raises(InputError, match="durability='much'"):
            opened(f"{url}{'&' if '?' in url else '?'}durability=much")


@pytest.mark.req("G3")
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_risks_its_files_is_best_effort(setting: str) -> None:
    server = PostgresServer(**{setting: "off"})
    try:
        assert opened(server.url()) == "best_effort"
    finally:
        server.remove()


@pytest.mark.req("G3")
def test_facts_tell_what_durability_rests_on() -> None:
    async def told(url: str) -> dict[str, str]:
        store = await connect(url)
        try:
            return await store.facts()
        finally:
            await store.close()

    with fresh_url(synchronous_commit="on") as url:
        facts = asyncio.run(told(url))
    assert (facts["synchronous_commit"], facts["fsync"], facts["full_page_writes"]) == ("on", "on", "on")
    assert facts["schema"].startswith(target(url).schema)
    assert "connections" in facts["pool"]
