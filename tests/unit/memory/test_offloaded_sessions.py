"""From a session to the engine: what `SessionManager` leaves in the outbox arrives whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.memory.offload import Notes
from turnstate import Budget, Message
from turnstate.memory import User, Worker, open_engine
from turnstate.session import SessionManager
from turnstate.testing.doubles import FixedClock

pytestmark = pytest.mark.req("F2", "F3")

Test = Callable[[SessionManager, FixedClock], Awaitable[None]]


@pytest.fixture(params=["memory:", "sqlite:///offloaded.db"])
def run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Test], None]:
    monkeypatch.chdir(tmp_path)

    def run(test: Test) -> None:
        async def inside() -> None:
            clock = FixedClock()
            async with await SessionManager.open(request.param, clock=clock) as sessions:
                await test(sessions, clock)

        asyncio.run(inside())

    return run


Run = Callable[[Test], None]


def turn(number: int) -> list[Message]:
    return [
        Message.user(f"Question {number}: " + "what about the harbour " * 20),
        Message.assistant(f"Answer {number}: " + "the harbour is open " * 20),
    ]


def test_every_message_arrives_once_and_in_order_however_often_the_window_was_cut(run: Run) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session, said = await sessions.create(user="u1", system="You help."), list[Message]()
        for number in range(40):
            messages = turn(number)
            await session.append(*messages)
            said += messages
            await session.window(Budget(window=2_000))
        cuts = len(await sessions.store.parcels())
        assert cuts > 1
        session = await session.reset()
        engine = Notes()
        assert await Worker(sessions.store, engine, clock=clock).run_once() == {"delivered": cuts + 1}
        (record,) = engine.records
        assert [message async for message in record.messages] == said
        assert sorted(engine.ids) == [message.id for message in said]
        assert (record.user, record.reason, record.epoch) == ("u1", "reset", 1)
        assert record.summary
        assert record.summary in engine.summaries

    run(test)


def test_what_left_the_window_arrives_while_the_session_goes_on(run: Run) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session, engine, said = await sessions.create(user="u1"), Notes(), list[Message]()
        for number in range(40):
            said += turn(number)
            await session.append(*said[-2:])
            window = await session.window(Budget(window=2_000))
            await Worker(sessions.store, engine, clock=clock).run_once()
            shown = {message.id for message in window.messages}
            assert {message.id for message in said} - shown <= set(engine.ids)
        assert engine.ids == [message.id for message in said[: len(engine.ids)]]
        assert len(engine.ids) > 60

    run(test)


@pytest.mark.req("G7")
def test_two_quick_resets_are_one_delivery(run: Run) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session = await sessions.create(user="u1")
        await session.append(*turn(1))
        session = await session.reset()
        session = await session.reset()
        engine = Notes()
        assert await Worker(sessions.store, engine, clock=clock).run_once() == {"delivered": 1}
        assert len(engine.ids) == 2

    run(test)


@pytest.mark.req("G7")
def test_a_session_in_which_nothing_was_said_is_not_delivered(run: Run) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session = await sessions.create(user="u1", system="You help.")
        session = await session.reset()
        assert await sessions.store.parcels() == []
        assert await Worker(sessions.store, Notes(), clock=clock).run_once() == {}

    run(test)


def test_each_epoch_is_a_record_of_its_own(run: Run, tmp_path: Path) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session = await sessions.create(user="u1")
        await session.append(Message.user("Green tea, please."))
        session = await session.reset()
        await session.append(Message.user("Black tea, please."))
        await session.end("closed")
        engine = await open_engine(f"builtin:{tmp_path}/memory.db")
        assert await Worker(sessions.store, engine, clock=clock).run_once() == {"delivered": 2}
        found = await engine.search(User("default", "u1"), "tea", 5)
        assert [one.text for one in found] == ["Black tea, please.", "Green tea, please."]
        await engine.close()

    run(test)


def test_a_process_that_ends_leaves_nothing_to_deliver(tmp_path: Path) -> None:
    async def test() -> None:
        url = f"sqlite:///{tmp_path}/store.db"
        async with await SessionManager.open(url) as sessions:
            session = await sessions.create(user="u1")
            await session.append(*turn(1))
        async with await SessionManager.open(url) as sessions:
            assert await sessions.store.parcels() == []

    asyncio.run(test())


@pytest.mark.req("G9")
def test_a_session_that_was_destroyed_is_not_delivered(run: Run) -> None:
    async def test(sessions: SessionManager, clock: FixedClock) -> None:
        session = await sessions.create(user="u1")
        await session.append(*turn(1))
        session = await session.reset()
        await sessions.destroy(session.id)
        engine = Notes()
        assert await Worker(sessions.store, engine, clock=clock).run_once() == {}
        assert engine.deliveries == 0

    run(test)
