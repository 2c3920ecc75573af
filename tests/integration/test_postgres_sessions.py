"""Conversations on a PostgreSQL store, from the first message to the erasure."""

from __future__ import annotations

import asyncio
import re

import asyncpg
import pytest

from tests.harness.postgres_server import execute, fresh_url
from tests.harness.turn_answers import check_answers
from turnstate import Budget, Message, SessionManager
from turnstate.errors import EpochEnded, NotFound
from turnstate.stores import STORES
from turnstate.stores.postgres import connect
from turnstate.stores.postgres.queries import queries
from turnstate.stores.postgres.server import target


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("postgresql", "postgres"):
        monkeypatch.setitem(STORES, scheme, "postgres")


async def conversation(url: str) -> None:
    async with await SessionManager.open(url) as sessions:
        session = await sessions.create(user="u1", system="You keep a lighthouse.")
        for night in range(60):
            await session.append(
                Message.user(f"Night {night}: is the disk of the lamp full?"),
                Message.assistant("It is. " * 40),
            )
        window = await session.window(Budget(4_000))
        assert window.decisions
        assert len(await session.messages()) == 120

        again = await sessions.open(session.id, user="u1")
        assert (await again.window(Budget(4_000))).messages == window.messages
        with pytest.raises(NotFound):
            await sessions.open(session.id, user="u2")

        question = (await session.messages())[-2]
        await session.rewind(to=question.id)
        assert len(await session.messages()) == 119
        await session.undo()
        assert len(await session.messages()) == 120

        found = [hit async for hit in sessions.search("lamp disk", user="u1")]
        assert [hit.message.text for hit in found[:2]] == [
            "Night 59: is the disk of the lamp full?",
            "Night 58: is the disk of the lamp full?",
        ]
        assert len(found) == 60
        assert [hit async for hit in sessions.search("lamp disk", user="u2")] == []

        session = await session.reset()
        with pytest.raises(EpochEnded):
            await again.append(Message.user("late"))
        await session.append(Message.user("A new day."))
        assert [message.text for message in await session.messages()] == ["A new day."]


async def erased(url: str) -> bool:
    async with await SessionManager.open(url) as sessions:
        receipt = await sessions.erase(user="u1")
        assert len(receipt.sessions) == 1
        assert [hit async for hit in sessions.search("lamp")] == []
        return receipt.scrubbed


@pytest.mark.req("G2", "G3", "G4", "G7", "G9", "C9")
def test_a_conversation_is_held_searched_reset_and_erased() -> None:
    with fresh_url() as url:
        asyncio.run(conversation(url))
        assert asyncio.run(erased(url)) is False  # of free space and the log of writes nothing is promised
        tables = ("session", "branch", "entry", "damaged", "key", "outbox")
        for table in tables:
            assert execute(f"SELECT count(*) FROM {target(url).schema}.{table}")[0][0] == 0, table


def test_a_session_is_found_by_its_name_also_by_plans_that_were_made_for_an_empty_table() -> None:
    names = ("session", "branches", "read", "read_newest", "find", "newest", "describe", "acquire")

    async def scene(url: str) -> None:
        await (await connect(url)).close()
        connection = await asyncpg.connect(target(url).dsn)
        try:
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            for name in names:
                query = queries(target(url).schema)[name]
                await connection.execute(f"PREPARE {name}_plan AS {query.sql}")
                nothing = ", ".join(["NULL"] * len(query.names))
                plan = str(await connection.fetch(f"EXPLAIN EXECUTE {name}_plan ({nothing})"))
                assert set(re.findall(r"session_by_\w+", plan)) == {"session_by_name"}, plan
        finally:
            await connection.close()

    with fresh_url() as url:
        asyncio.run(scene(url))


@pytest.mark.req("G6")
def test_a_turn_has_its_own_answer_also_when_its_key_is_repeated() -> None:
    async def main(url: str) -> None:
        async with await SessionManager.open(url) as sessions:
            session = await sessions.create()
            await check_answers(session, lambda: sessions.open(session.id))

    with fresh_url() as url:
        asyncio.run(main(url))
