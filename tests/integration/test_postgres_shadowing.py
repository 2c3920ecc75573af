"""No code of another role runs as ours, whatever it defines on the search path of our connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from tests.harness.postgres_server import execute, fresh_url
from tests.integration.postgres_rival import PATHS, Rival, leave_temporaries
from turnstate import Budget, Message, SessionManager
from turnstate.archive import archive
from turnstate.cli.commands.doctor import checks
from turnstate.codec import encode
from turnstate.ids import UNKNOWN_TIME
from turnstate.memory import Worker, open_engine
from turnstate.stores.port import Store
from turnstate.stores.postgres import PostgresStore, connect, search
from turnstate.stores.postgres.queries import migrations
from turnstate.stores.postgres.rows import checksum, content_sum, marks, quoted
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address
from turnstate.testing.contract.admission import AdmissionContract
from turnstate.testing.contract.directory import DirectoryContract
from turnstate.testing.contract.health import HealthContract
from turnstate.testing.contract.leases import LeaseContract, OutboxContract
from turnstate.testing.contract.log import BranchContract, LogContract
from turnstate.testing.contract.search import SearchContract

_numbers = count(1)
_PINNED = "search_path=pg_catalog, pg_temp"


@pytest.fixture(scope="module")
def rival() -> Iterator[Rival]:
    planted = Rival()
    yield planted
    planted.remove()


@pytest.fixture(scope="module")
def contested_url(rival: Rival) -> str:
    """Make a store in the contested database, and return its URL."""
    url = rival.url(search_path=PATHS[1], schema="contested")
    asyncio.run(opened(url))
    return url


@pytest.mark.req("G3", "G5")
class TestContestedStore(
    AdmissionContract,
    BranchContract,
    DirectoryContract,
    HealthContract,
    LeaseContract,
    LogContract,
    OutboxContract,
    SearchContract,
):
    """Every operation of a store, in a database where a rival shadows all that our SQL calls.

    The tests share a schema, which is emptied before each: making one takes longer than a test.
    """

    @pytest.fixture(autouse=True)
    def fresh(self, rival: Rival, contested_url: str) -> Iterator[None]:
        self.url = contested_url
        rival.empty("contested")
        yield
        assert rival.heard() == []

    async def connect(self) -> Store:
        return await connect(self.url)


async def use(store: PostgresStore, folder: Path) -> None:
    """Do what users do with a store, from the first message to the last deletion."""
    engine = await open_engine(f"builtin:{folder}/memory.db")
    sessions = SessionManager(store, idle=3_600, memory=engine)
    session = await sessions.create(user="u1", system="You keep a lighthouse.", tags=["night"])
    async with session.lease():
        for night in range(30):
            question = Message.user(f"Night {night}: is the lamp lit?")
            await session.append(question, Message.assistant("It is. " * 40), key=f"n{night}")
            await session.append(question, Message.assistant("It is. " * 40), key=f"n{night}")
    assert (await session.window(Budget(2_000))).decisions
    await session.rewind(to=(await session.messages())[-2].id)
    await session.undo()
    await session.rename("lamps")
    await session.begin_tangent()
    await session.append(Message.user("And the bell?"), Message.assistant("It rings."))
    await session.leave_tangent("tail")
    assert await session.undo() == "tangent exit"
    await session.conversation(last=10)
    assert [found async for found in sessions.search("lamp night", user="u1")]
    assert await sessions.list(user="u1", tag="night")
    assert await sessions.list(since=datetime(2001, 1, 1, tzinfo=UTC), live=True)
    assert await sessions.expire() == []

    async def wanted() -> AsyncIterator[Address]:
        yield Address("default", session.id)

    assert [line async for line in archive(store, wanted())]
    assert [finding async for finding in store.verify(repair=True)] == []
    session = await session.reset()
    counts = await Worker(store, engine).run_once()
    assert counts["delivered"]
    assert await store.facts()
    other = await sessions.create(id="other")
    await sessions.destroy(other.id)
    assert (await sessions.erase(user="u1")).sessions
    await engine.close()


@pytest.mark.req("G3")
@pytest.mark.parametrize("path", PATHS)
def test_nothing_that_another_role_defines_runs_as_ours(rival: Rival, path: str, tmp_path: Path) -> None:
    async def used() -> None:
        store = await connect(rival.url(search_path=path, schema=f"kept_{next(_numbers)}"))
        try:
            await use(store, tmp_path)
        finally:
            await store.close()

    asyncio.run(used())
    assert rival.heard() == []


@pytest.mark.req("G3")
def test_nothing_that_was_left_on_a_connection_is_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "IDLE", 3_600)  # nothing else needs a connection
    monkeypatch.setattr(search, "BUSY", 3_600)

    async def used(url: str) -> None:
        store = await connect(url)
        try:
            async with store._connections.connection() as connection:
                await leave_temporaries(connection)
            await use(store, tmp_path)
            assert store._connections._pool.get_size() == 1
        finally:
            await store.close()

    with fresh_url() as url:
        asyncio.run(used(url))


@pytest.mark.parametrize("path", PATHS)
def test_the_rival_is_heard_where_a_name_is_not_qualified(rival: Rival, path: str) -> None:
    url = rival.url(search_path=path)
    try:
        execute(
            "SELECT cardinality(ARRAY['a'::pg_catalog.text]), ARRAY['a'::pg_catalog.text] @> '{}'", url=url
        )
        assert rival.heard() == [
            "public.cardinality(text[]) as keeper",
            "public.op @>(text[], text[]) as keeper",
        ]
    finally:
        rival.forget()


def functions(schema: str) -> dict[str, list[str] | None]:
    found = execute(
        f"SELECT proname::text, proconfig FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace"
    )
    return dict(found)


@pytest.mark.req("G3")
def test_every_function_sets_its_own_search_path() -> None:
    with fresh_url() as url:
        asyncio.run(opened(url))
        found = functions(target(url).schema)
    assert found.keys() >= {"append", "create_session", "remove"}
    assert all(_PINNED in (settings or ()) for settings in found.values()), found


OLD_ROWS = """
INSERT INTO {0}.session (
    tenant, id, title, tags, counter, meta, marks, created, active, idle, epoch, branch, seq, total, version,
    fence, lease_until, holder, reason)
VALUES ('t', 's', '', '{{}}', 'o200k_base', '{{}}', $${1}$$, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, '', '');
INSERT INTO {0}.branch VALUES (1, 1, NULL, 0, 1, '', 'create', NULL);
INSERT INTO {0}.entry (session, branch, seq, id, kind, body, tokens, total, checksum, words)
VALUES (1, 1, 1, 'm', 'message', '\\x{2}', 0, 0, {3}, $${1} 'lamp'$$)"""


@pytest.mark.req("C9", "G3")
def test_an_earlier_schema_keeps_its_words_and_gets_new_functions() -> None:
    body = encode(Message.user("lamp", id="m", timestamp=UNKNOWN_TIME))
    summed = checksum(1, 1, 1, content_sum(0, "message", "m", body))

    async def used(url: str) -> None:
        store = await connect(url)
        try:
            assert [one async for one in store.verify(repair=False)] == []
            (hit,) = await store.search("t", ["lamp"], user=None, before=None, limit=9)
            assert (hit.session, hit.row.id, hit.row.damaged) == ("s", "m", False)
        finally:
            await store.close()

    with fresh_url() as url:
        schema = target(url).schema
        rows = OLD_ROWS.format(schema, quoted(marks("t", None)), body.hex(), summed)
        script = [
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.migration (number int PRIMARY KEY, taken timestamptz DEFAULT now())",
            f"INSERT INTO {schema}.migration (number) SELECT generate_series(1, 4)",
            migrations(schema)[0].removesuffix(";"),
            rows,
            f"CREATE FUNCTION {schema}.append(words text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ]
        execute(f"DO $script$ BEGIN {'; '.join(script)}; END $script$")
        asyncio.run(used(url))
        found = functions(schema)
        assert found.keys() >= {"append", "add_words", "remove"}
        assert all(_PINNED in (settings or ()) for settings in found.values())
        ((number,),) = execute(f"SELECT max(number) FROM {schema}.migration")
        assert number == len(migrations(schema)) > 4


async def opened(url: str) -> None:
    store = await connect(url)
    await store.close()


FOREIGN_OBJECTS: list[tuple[list[str], str]] = [
    (["CREATE FUNCTION {0}.tap() RETURNS int LANGUAGE sql AS 'SELECT 1'"], "function tap"),
    (["CREATE VIEW {0}.lens AS SELECT 1 AS one"], "relation lens"),
    (["CREATE DOMAIN {0}.shape AS text"], "type shape"),
    (["CREATE TYPE {0}.pair AS (a int, b int)"], "relation pair"),
    (["ALTER TABLE {0}.damaged OWNER TO rival"], "relation damaged"),
    (["CREATE RULE quiet AS ON DELETE TO {0}.key DO INSTEAD NOTHING"], "rule quiet"),
    (["CREATE POLICY narrow ON {0}.session"], "policy narrow"),
    (
        [
            "CREATE FUNCTION public.wake() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER wakes BEFORE INSERT ON {0}.entry EXECUTE FUNCTION public.wake()",
        ],
        "trigger wakes",
    ),
]


@pytest.mark.req("G3", "P3")
@pytest.mark.usefixtures("rival")
@pytest.mark.parametrize(("statements", "named"), FOREIGN_OBJECTS)
def test_doctor_warns_of_what_others_made_in_our_schema(statements: list[str], named: str) -> None:
    with fresh_url() as url:
        asyncio.run(opened(url))
        try:
            execute(*(statement.format(target(url).schema) for statement in statements))
            result, text = foreign_objects(url)
        finally:
            execute("DROP FUNCTION IF EXISTS public.wake CASCADE")
        assert (result, text.partition(":")[0]) == ("warning", named)


def test_doctor_finds_nothing_foreign_in_a_schema_of_ours() -> None:
    with fresh_url() as url:
        asyncio.run(opened(url))
        assert foreign_objects(url) == ("ok", "none")


def foreign_objects(url: str) -> tuple[str, str]:
    """Return what doctor says about objects that are not ours."""

    async def looked() -> tuple[str, str]:
        found = [check async for check in checks(url)]
        return next((check.result, check.text) for check in found if check.name == "store.foreign")

    return asyncio.run(looked())
