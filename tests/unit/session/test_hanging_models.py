"""A model that hangs, in whatever way, keeps nobody waiting beyond the deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.session.session_fixtures import Harness, grown, run
from turnstate import Budget, Message, blocking
from turnstate.models import Finished, ModelEvent, ModelFailed, ModelRequest, TextDelta, complete
from turnstate.session import SessionManager, summaries

pytestmark = pytest.mark.req("D4", "D5")

BUDGET = Budget(20_000)
GOOD = "Goal: find the lost key."
PATIENCE = 0.2
SOON = 30.0  # seconds; far more than the deadline, far less than for good


class Hanging:
    """A model that hangs in some way until it is let go, and answers afterwards."""

    name = "hanging"

    def __init__(self) -> None:
        self.released, self.requests = False, 0

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests += 1
        return self.answered() if self.released else self.hang()

    async def answered(self) -> AsyncIterator[ModelEvent]:
        yield TextDelta(GOOD)
        yield Finished()

    async def hang(self) -> AsyncIterator[ModelEvent]:
        raise NotImplementedError
        yield

    async def deaf(self) -> None:
        """Wait, and ignore every cancellation."""
        while not self.released:
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue


class Silent(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        await asyncio.Event().wait()
        yield Finished()


class Deaf(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        await self.deaf()
        yield Finished()


class DeafAtTheEnd(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        try:
            yield TextDelta("Goal")
            await asyncio.Event().wait()
        finally:
            await self.deaf()


class Endless(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        while not self.released:
            yield TextDelta(".")


class Dripping(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        while not self.released:
            await asyncio.sleep(0.01)
            yield TextDelta(".")


class DeafDripping(Hanging):
    async def hang(self) -> AsyncIterator[ModelEvent]:
        while not self.released:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
            yield TextDelta(".")


KINDS: list[type[Hanging]] = [Silent, Deaf, DeafAtTheEnd, Endless, Dripping, DeafDripping]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@run
async def test_a_compaction_ends_at_its_deadline_with_the_digest(
    harness: Harness, kind: Callable[[], Hanging]
) -> None:
    model = kind()
    session = await (await harness.manager(model=model)).create()
    said = await grown(session, 10)
    try:
        started = time.monotonic()
        done = await session.compact(BUDGET, patience=PATIENCE)
        assert time.monotonic() - started < SOON
        assert (done.source, done.refused) == ("digest", "the model gave no summary within 0.2 seconds")
        assert await session.messages() == said
        assert done.summary in (await session.window(BUDGET)).messages[0].text
    finally:
        model.released = True
    await grown(session, 4)
    assert (await session.compact(BUDGET, patience=SOON)).source == "model"


@every_kind
@run
async def test_a_background_request_ends_at_its_deadline_and_the_next_one_is_made(
    harness: Harness, kind: Callable[[], Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "PATIENCE", PATIENCE)
    model, budget = kind(), Budget(700)
    manager = await harness.manager(model=model)
    session = await manager.create()
    await grown(session, 60)
    try:
        await session.window(budget)
        await asyncio.wait_for(manager.settled(), SOON)
        assert model.requests == 1
    finally:
        model.released = True
    await grown(session, 60)
    await session.window(budget)
    await asyncio.wait_for(manager.settled(), SOON)
    assert model.requests == 2
    window = await session.window(budget)
    assert any(GOOD in message.text for message in window.messages if message.kind == "summary")


@every_kind
def test_closing_does_not_wait_for_a_model(kind: Callable[[], Hanging]) -> None:
    async def main() -> None:
        model = kind()
        try:
            async with await SessionManager.open("memory:", model=model) as sessions:
                session = await sessions.create()
                await grown(session, 60)
                await session.window(Budget(700))
                await asyncio.sleep(0.02)
                assert model.requests == 1
                started = time.monotonic()
            assert time.monotonic() - started < SOON
        finally:
            model.released = True

    asyncio.run(main())


def test_a_blocking_compaction_ends_at_its_deadline() -> None:
    model = Deaf()
    with blocking.SessionManager.open("memory:", model=model) as sessions:
        session = sessions.create()
        for number in range(10):
            session.append(Message.user(f"question {number}"), Message.assistant("an answer " * 20))
        started = time.monotonic()
        assert "within 0.2 seconds" in session.compact(BUDGET, patience=PATIENCE).refused
        assert time.monotonic() - started < SOON
        model.released = True


def test_closing_blocking_sessions_does_not_wait_for_a_model_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocking, "ENDING", 0.2)
    model = Deaf()
    try:
        with blocking.SessionManager.open("memory:", model=model) as sessions:
            session = sessions.create()
            for number in range(10):
                session.append(Message.user(f"question {number}"), Message.assistant("an answer " * 20))
            session.compact(BUDGET, patience=PATIENCE)
            started = time.monotonic()
        assert time.monotonic() - started < SOON
    finally:
        model.released = True


class Cancelling(Hanging):
    """A model whose library gives up by raising ``CancelledError``."""

    async def hang(self) -> AsyncIterator[ModelEvent]:
        raise asyncio.CancelledError
        yield


@run
async def test_a_model_that_raises_cancelled_error_has_failed(harness: Harness) -> None:
    model = Cancelling()
    session = await (await harness.manager(model=model)).create()
    await grown(session, 10)
    done = await session.compact(BUDGET)
    assert (done.source, model.requests) == ("digest", 3)  # an error: tried again with less of the record
    assert "canceled by the model" in done.refused


@run
async def test_a_model_that_raises_cancelled_error_in_the_background_is_counted(harness: Harness) -> None:
    model, budget = Cancelling(), Budget(700)
    manager = await harness.manager(model=model)
    session = await manager.create()
    for _ in range(5):
        await grown(session, 60)
        await session.window(budget)
        await manager.settled()
    assert model.requests == 3
    assert "3 times in a row" in session.notices[0]


@run
async def test_a_compaction_that_is_cancelled_is_cancelled(harness: Harness) -> None:
    session = await (await harness.manager(model=Silent())).create()
    said = await grown(session, 10)
    task = asyncio.create_task(session.compact(BUDGET))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list((await session.window(BUDGET)).messages) == said


def test_completing_tells_a_cancelled_request_from_a_cancelled_caller() -> None:
    async def main() -> None:
        request = ModelRequest(messages=(Message.user("hi"),))
        with pytest.raises(ModelFailed):
            await complete(Cancelling(), request)
        with pytest.raises(TimeoutError):
            await complete(Silent(), request, patience=0.01)
        task = asyncio.create_task(complete(Silent(), request))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
