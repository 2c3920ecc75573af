"""A memory belongs to one user of one tenant, and is gone when it is forgotten, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.postgres_server import dumped, execute, fresh_url
from turnstate import Budget, Message, SessionManager
from turnstate.entry import Bootstrap
from turnstate.memory import Listed, SessionRecord, User
from turnstate.memory.builtin import connect
from turnstate.memory.engines import beside
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address

QUESTION = "Which city do I live in?"
TENANTS = ("acme", "acme2")
USERS = (
    "ann", "ANN", "ann ", "ａｎｎ", "a\u0301nn", "%", "_", "*", "'; DELETE FROM owner; --", '" OR ""="',
    "../ann", "$1 :name ?1 {0}", "ann\n", "\u202eann", "null",
)  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'agent.db'}"
        return
    with fresh_url() as url:
        yield url
        execute(f"DROP SCHEMA IF EXISTS {target(url).schema}_memory CASCADE")


def city(tenant: int, user: int) -> str:
    """Return a name that no other user has, nor a part of one."""
    return f"Q{'xyz'[tenant]}{chr(ord('a') + user) * 5}"


async def everything(sessions: SessionManager, user: str) -> str:
    """Return all that reaches a user in a new session: profile, recall, and the request of a turn."""
    session = await sessions.create(user=user)
    found = [one.entry for one in await session.entries(kinds=["bootstrap"])]
    texts = [entry.text for entry in found if isinstance(entry, Bootstrap)]
    texts += [hit.text for hit in await session.recall(QUESTION, 99)]
    async with session.turn(QUESTION, budget=Budget(8_000)) as turn:
        texts.append(str(await turn.request("openai-chat", model="gpt-5")))
    return "\n".join(texts)


@pytest.mark.req("F6", "G4")
def test_nothing_of_one_user_reaches_another_by_any_way(store: str) -> None:
    owners = [(t, u) for t in range(len(TENANTS)) for u in range(len(USERS))]

    async def tell(tenant: int) -> None:
        async with SessionManager.open(store, tenant=TENANTS[tenant], memory="builtin") as sessions:
            for number, user in enumerate(USERS):  # session ids are the same in both tenants
                session = await sessions.create(id=f"s{number}", user=user)
                await session.append(Message.user(f"I live in {city(tenant, number)}."))
                await session.remember(f"likes the harbor of {city(tenant, number)}")
                await session.end()
            await sessions.deliver()

    async def ask(tenant: int) -> dict[tuple[int, int], str]:
        async with SessionManager.open(store, tenant=TENANTS[tenant], memory="builtin") as sessions:
            return {(tenant, n): await everything(sessions, user) for n, user in enumerate(USERS)}

    async def exported(tenant: int, user: int) -> str:
        engine = await connect(beside(store).removeprefix("builtin:"))
        try:
            lines = [line async for line in engine.export(User(TENANTS[tenant], USERS[user]))]
        finally:
            await engine.close()
        return b"".join(lines).decode()

    async def test() -> None:
        for tenant in range(len(TENANTS)):
            await tell(tenant)
        shown = {**await ask(0), **await ask(1)}
        for owner in owners:
            text = shown[owner] + await exported(*owner)
            assert [other for other in owners if city(*other) in text] == [owner]

    asyncio.run(test())


class Letters:
    """An embedder that knows letters."""

    name = "letters"

    async def embed(self, texts: list[str]) -> list[list[float]]:
        return [[text.lower().count(letter) + 0.1 for letter in "aeioutrn"] for text in texts]

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.req("G9")
def test_after_forgetting_no_query_and_no_dump_of_postgresql_finds_a_word() -> None:
    pytest.importorskip("numpy")
    words = [b"zanzibar", b"quokka", b"Kilimanjaro", b"s-hidden", b"m-hidden", b"u-hidden"]
    messages = [
        Message.user(f"I live in Kilimanjaro with a quokka {n}, zanzibar.", id=f"m-hidden{n}")
        for n in range(20)
    ]
    record = SessionRecord(
        key="s-hidden:1",
        tenant="t",
        session="s-hidden",
        user="u-hidden",
        epoch=1,
        messages=Listed(messages),
        since=1,
        reason="end",
        started=1,
        ended=2,
        summary="quokka",
    )

    async def test(url: str, whose: User | Address) -> None:
        engine = await connect(url, embedder=Letters())
        try:
            await engine.ingest(record)
            (vector,) = await engine._database.rows("vectors_of", owner=1, embedder="letters", numbers=[0])
            hidden = [*words, vector[1].hex().encode()]
            schema = f"{target(url).schema}_memory"
            assert [word for word in hidden if word in dumped(schema)] == hidden
            await engine.forget(whose)
            await engine.ingest(record)
            gone = hidden if isinstance(whose, User) else [word for word in hidden if word != b"u-hidden"]
            dump = dumped(schema)
            assert [word for word in gone if word in dump] == []
            assert await engine.search(User("t", "u-hidden"), "quokka", 9) == []
        finally:
            await engine.close()

    for whose in (User("t", "u-hidden"), Address("t", "s-hidden")):
        with fresh_url() as url:
            asyncio.run(test(url, whose))
            execute(f"DROP SCHEMA IF EXISTS {target(url).schema}_memory CASCADE")
