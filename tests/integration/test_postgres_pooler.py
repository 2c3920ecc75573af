"""PostgreSQL behind a real PgBouncer, which lends a connection for a transaction at a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from itertools import count
from typing import Any

import asyncpg
import pytest

from tests.harness.pgbouncer_server import PgBouncer, missing, pooled_url
from tests.harness.postgres_server import executed, fresh_url
from turnstate import Message, Session, SessionManager
from turnstate.errors import Busy, InputError, StoreUnavailable
from turnstate.memory import User
from turnstate.stores.postgres import PostgresStore, connect
from turnstate.stores.postgres.server import target

CLIENTS, APPENDS = 4, 75
_numbers = count(1)


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return an asynchronous test as one that pytest runs."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture(scope="module")
def bouncer() -> Iterator[PgBouncer]:
    if reason := missing():
        pytest.skip(reason)
    bouncer = PgBouncer()
    yield bouncer
    bouncer.remove()


@pytest.fixture
def url(bouncer: PgBouncer) -> Iterator[str]:
    with pooled_url(bouncer, str(next(_numbers))) as url:
        yield url


@pytest.fixture
def direct_url() -> Iterator[str]:
    with fresh_url() as url:
        yield url


@pytest.fixture
def session_url() -> Iterator[str]:
    """The store behind a pooler that lends connections for as long as a client is connected."""
    if reason := missing():
        pytest.skip(reason)
    bouncer = PgBouncer("session", default_pool_size="20")
    with pooled_url(bouncer, "session", pooler="session") as url:
        yield url
    bouncer.remove()


@pytest.fixture
def misused_url() -> Iterator[str]:
    """The store behind a pooler of its own whose kind the URL gets wrong."""
    if reason := missing():
        pytest.skip(reason)
    bouncer = PgBouncer("transaction")
    with pooled_url(bouncer, "misused", pooler="session") as url:
        yield url
    bouncer.remove()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await connect(url)
    try:
        yield store
    finally:
        await store.close()


async def append_from_all(clients: Sequence[SessionManager]) -> list[Session]:
    """Let each client append to a session of its own, all at once."""
    sessions = [await client.create(id=f"s{number}") for number, client in enumerate(clients)]

    async def append(number: int) -> None:
        for n in range(APPENDS):
            await sessions[number].append(Message.user(f"word{n} of {number}"), key=f"{n}")

    await asyncio.gather(*map(append, range(len(clients))))
    return sessions


@awaited
async def test_clients_share_fewer_connections_and_lose_nothing(url: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(SessionManager.open(url)) for _ in range(CLIENTS)]
        sessions = await append_from_all(clients)
        for number, session in enumerate(sessions):
            texts = [message.text for message in await session.messages()]
            assert texts == [f"word{n} of {number}" for n in range(APPENDS)]
        hits = [hit async for hit in clients[0].search("word7")]
        assert len(hits) == CLIENTS
        assert [one async for one in clients[0].store.verify(repair=True)] == []
        other = await clients[1].open("s0")
        async with sessions[0].lease():
            with pytest.raises(Busy):
                await other.acquire()


@awaited
async def test_statements_that_are_kept_on_a_connection_are_caught_and_the_error_says_what_to_write(
    misused_url: str,
) -> None:
    async def append() -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(SessionManager.open(misused_url)) for _ in range(4)]
            await append_from_all(clients)

    with pytest.raises(StoreUnavailable, match=r"write \?pooler=transaction in the URL"):
        await append()


@awaited
async def test_the_memory_works_through_a_pooler(url: str) -> None:
    async with SessionManager.open(url, memory="builtin") as sessions:
        session = await sessions.create(user="ada")
        await session.append(Message.user("I live in Zurich"), Message.assistant("Noted."))
        await session.end("done")
        await sessions.deliver()
        assert sessions.memory is not None
        found = await sessions.memory.search(User("default", "ada"), "Where do I live?", 3)
        assert any("Zurich" in one.text for one in found)


@awaited
async def test_a_setting_that_another_client_left_behind_does_not_make_commits_less_durable(
    bouncer: PgBouncer, url: str
) -> None:
    async with SessionManager.open(url) as sessions:
        session = await sessions.create()
        other = await asyncpg.connect(bouncer.url(), statement_cache_size=0)
        for _ in range(20):  # each may run on either connection of the pool
            await other.execute("SET synchronous_commit = off; SET search_path = public")
        await other.close()
        schema = target(url).schema
        await executed(
            f"CREATE TABLE {schema}.seen (value text)",
            f"CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$",
            f"CREATE TRIGGER note AFTER INSERT ON {schema}.entry "
            f"FOR EACH ROW EXECUTE FUNCTION {schema}.note()",
        )
        for number in range(8):
            await session.append(Message.user(f"{number}"))
        assert sessions.store.durability == "fsync"
        assert {value for (value,) in await executed(f"SELECT value FROM {schema}.seen")} == {"on"}


@awaited
async def test_a_pooler_is_recognized_and_a_server_is_not_taken_for_one(url: str, direct_url: str) -> None:
    async with opened(url) as store:
        assert (await store.facts())["pooler"] == "transactions"
    async with opened(direct_url) as store:
        assert (await store.facts())["pooler"] == "none"
    async with opened(f"{direct_url}&pooler=transaction") as store:
        assert (await store.facts())["pooler"] == "transactions"
        assert store.durability == "best_effort"  # the URL turns synchronous_commit off


@awaited
async def test_no_statement_is_left_on_the_connections_of_a_pooler(bouncer: PgBouncer, url: str) -> None:
    async with SessionManager.open(url) as sessions:
        await (await sessions.create()).append(Message.user("a"))
    probe = await asyncpg.connect(bouncer.url(), statement_cache_size=0)
    for _ in range(8):
        assert await probe.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
    await probe.close()


@awaited
async def test_a_pooler_that_lends_connections_for_a_session_may_keep_statements(session_url: str) -> None:
    async with SessionManager.open(session_url) as sessions:
        session = await sessions.create()
        await asyncio.gather(*(session.append(Message.user(f"{number}")) for number in range(20)))
        assert len(await session.messages()) == 20
        assert (await sessions.store.facts())["pooler"] == "none"


def test_an_unknown_kind_of_pooler_is_refused() -> None:
    with pytest.raises(
        InputError, match=re.escape("pooler='yes' is not supported; write transaction or session")
    ):
        target("postgresql://localhost/a?pooler=yes")
