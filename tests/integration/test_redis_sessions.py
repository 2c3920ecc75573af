"""Sessions on a Redis server and on a Cluster, as an agent uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.harness.turn_answers import check_answers
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate import Budget, Message
from turnstate.errors import NotFound
from turnstate.session import SessionManager
from turnstate.stores.redis import connect
from turnstate.testing import FixedClock

both = pytest.mark.parametrize("fresh", [fresh_server, fresh_cluster])


def talk(count: int) -> list[Message]:
    answer = "The lamp burns well. Three ships went by, all of them on course. " * 6
    return [
        message
        for n in range(count)
        for message in (Message.user(f"Night {n}: how is the lamp?"), Message.assistant(f"{answer}{n}"))
    ]


@both
@pytest.mark.req("G2", "G3", "G7", "G9")
def test_a_conversation_is_kept_searched_forked_reset_and_erased(fresh: Callable[[], str]) -> None:
    async def lived() -> None:
        url = fresh()
        store = await connect(url)
        sessions = SessionManager(store, clock=FixedClock())
        session = await sessions.create(user="u1", system="You keep a lighthouse.")
        await session.append(*talk(40), key="first")
        await session.append(*talk(40), key="first")
        assert len(await session.messages()) == 80
        window = await session.window(Budget(4_000))
        assert window.decisions

        other = SessionManager(await connect(url), clock=FixedClock())
        again = await other.open(session.id, user="u1")
        assert (await again.window(Budget(4_000))).messages == window.messages
        with pytest.raises(NotFound):
            await other.open(session.id, user="somebody else")

        hits = [hit async for hit in sessions.search("night lamp", user="u1", limit=5)]
        assert len(hits) == 5
        messages = await session.messages()
        await session.fork(at=messages[9].id)
        assert len(await session.messages()) == 10
        await session.undo()
        assert len(await session.messages()) == 80
        session = await session.reset()
        assert await session.messages() == []
        assert [one.kind for one in await store.parcels() if one.kind == "ingest"] == ["ingest"]

        receipt = await sessions.erase(user="u1")
        assert list(receipt.sessions) == [session.id]
        assert not receipt.scrubbed
        with pytest.raises(NotFound):
            await sessions.open(session.id)
        assert [hit async for hit in sessions.search("night lamp", user="u1", limit=5)] == []
        assert await store.parcels() == []
        assert [finding async for finding in store.verify(repair=False)] == []
        await store.close()
        await other.store.close()

    asyncio.run(lived())


@pytest.mark.req("G9")
def test_nothing_of_an_erased_session_is_left_in_any_key() -> None:
    async def erased() -> list[bytes]:
        store = await connect(fresh_server())
        sessions = SessionManager(store, clock=FixedClock())
        session = await sessions.create(user="u1", system="You keep a lighthouse.", idle=60)
        await session.append(*talk(3), key="k")
        session = await session.reset()
        await session.append(*talk(3))
        await sessions.erase(user="u1")
        left: list[bytes] = await store._server.ask("KEYS", "*")
        await store.close()
        return left

    left = asyncio.run(erased())
    assert sorted(key.split(b":")[-1] for key in left) == [b"clock", b"version"]


@both
@pytest.mark.req("G6")
def test_a_turn_has_its_own_answer_also_when_its_key_is_repeated(fresh: Callable[[], str]) -> None:
    async def main() -> None:
        async with await SessionManager.open(fresh()) as sessions:
            session = await sessions.create()
            await check_answers(session, lambda: sessions.open(session.id))

    asyncio.run(main())
