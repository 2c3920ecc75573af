"""A model's summaries: prepared before the cut or swapped in after it, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turnstate import Budget, Message
from turnstate.codec import decode_entry
from turnstate.entry import Cut, Summary
from turnstate.errors import ModelFailed
from turnstate.session import Session, SessionManager
from turnstate.stores.values import Span
from turnstate.testing import ScriptedModel

pytestmark = pytest.mark.req("D2", "D3", "D4")

BUDGET = Budget(2_000)
GOOD = "Goal: find the lost key.\nNext: look under the mat."


def run(test: Callable[[SessionManager], Awaitable[None]], model: ScriptedModel) -> None:
    async def main() -> None:
        async with await SessionManager.open("memory:", model=model) as sessions:
            await test(sessions)

    asyncio.run(main())


async def say(session: Session, turns: int) -> None:
    for number in range(turns):
        await session.append(
            Message.user(f"question {number}: " + "where is it? " * 8),
            Message.assistant(f"answer {number}: " + "not here. " * 8),
        )


async def decisions(session: Session) -> list[Cut | Summary]:
    rows = await session._writer.store.read(session._row.address, Span(1, 1, 10**9))
    entries = [decode_entry(row.kind, row.body) for row in rows if row.kind in ("cut", "summary")]
    return [entry for entry in entries if isinstance(entry, Cut | Summary)]


async def fill(session: Session, share: float) -> None:
    """Talk until a window takes this share of the budget."""
    while (await session.preview(BUDGET)).tokens < share * BUDGET.limit:
        await say(session, 1)


def test_a_summary_is_prepared_before_the_cut_and_stands_in_it_from_the_start() -> None:
    model = ScriptedModel(GOOD)

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await fill(session, 0.9)
        assert not (await session.window(BUDGET)).decisions
        await sessions.settled()
        assert len(model.requests) == 1
        await say(session, 4)
        window = await session.window(BUDGET)
        summaries = [message for message in window.messages if message.kind == "summary"]
        assert [GOOD in message.text for message in summaries] == [True]
        cut, summary = await decisions(session)
        assert isinstance(cut, Cut)
        assert isinstance(summary, Summary)
        assert (summary.cut, summary.text) == (cut.id, GOOD)
        await sessions.settled()
        assert len(model.requests) == 1  # nothing is asked again after the cut

    run(test, model)


def test_without_time_to_prepare_the_digest_stands_and_is_replaced_later() -> None:
    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await say(session, 40)
        window = await session.window(BUDGET)
        assert not any(GOOD in message.text for message in window.messages)
        await sessions.settled()
        window = await session.window(BUDGET)
        assert [GOOD in message.text for message in window.messages if message.kind == "summary"] == [True]
        assert [type(one).__name__ for one in await decisions(session)] == ["Cut", "Summary"]

    run(test, ScriptedModel(GOOD))


def test_a_summary_whose_cut_is_no_longer_the_newest_is_thrown_away() -> None:
    gate = asyncio.Event()

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await say(session, 40)
        await session.window(BUDGET)
        await say(session, 40)
        await session.window(BUDGET)
        gate.set()
        await sessions.settled()
        assert [type(one).__name__ for one in await decisions(session)] == ["Cut", "Cut"]

    run(test, ScriptedModel(GOOD, hold=gate))


def test_a_summary_that_comes_after_a_reset_is_thrown_away() -> None:
    gate = asyncio.Event()

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await say(session, 40)
        await session.window(BUDGET)
        await asyncio.sleep(0)
        before = await decisions(session)
        other = await (await sessions.open(session.id)).reset()
        gate.set()
        await sessions.settled()
        assert await other.messages() == []
        assert await decisions(other) == before

    run(test, ScriptedModel(GOOD, hold=gate))


def test_only_one_request_is_under_way_at_a_time() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(GOOD, GOOD, GOOD, hold=gate)

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await say(session, 40)
        for _ in range(5):
            await session.window(BUDGET)
            await say(session, 1)
            await asyncio.sleep(0)
        assert len(model.requests) == 1
        gate.set()

    run(test, model)


@pytest.mark.parametrize(
    "reply", ["", "I'm sorry, I cannot do that.", "word " * 5_000, ModelFailed("down"), RuntimeError("boom")]
)
def test_a_model_that_fails_three_times_is_left_alone_and_the_user_is_told(
    reply: str | BaseException,
) -> None:
    model = ScriptedModel(*[reply] * 6)

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        for _ in range(6):
            await say(session, 40)
            await session.window(BUDGET)
            await sessions.settled()
        assert len(model.requests) == 3
        assert "3 times" in session.notices[0]
        assert all(isinstance(one, Cut) for one in await decisions(session))
        assert len(await session.messages()) == 6 * 80

    run(test, model)


def test_three_cuts_in_a_row_leave_one_summary_that_still_knows_the_first() -> None:
    model = ScriptedModel(*[lambda request: f"Goal: find the lost key. Round {len(request.messages)}."] * 9)

    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        for _ in range(3):
            await say(session, 40)
            await session.window(BUDGET)
            await sessions.settled()
        window = await session.window(BUDGET)
        assert len([message for message in window.messages if message.kind == "summary"]) == 1
        assert all("find the lost key" in request.messages[1].text for request in model.requests[1:])

    run(test, model)


def test_closing_breaks_off_what_is_under_way() -> None:
    async def test(sessions: SessionManager) -> None:
        session = await sessions.create()
        await say(session, 40)
        await session.window(BUDGET)
        await asyncio.sleep(0)

    run(test, ScriptedModel(GOOD, hold=asyncio.Event()))


def test_a_handle_keeps_its_own_model_for_summaries() -> None:
    """Sessions of one manager may belong to different endpoints: a late summary must not cross over."""
    first, second = ScriptedModel(GOOD, GOOD, name="first"), ScriptedModel(GOOD, GOOD, name="second")

    async def test(sessions: SessionManager) -> None:
        one, other = await sessions.create(), await sessions.create()
        other.summarize_with(second)
        for session in (one, other):
            await fill(session, 0.9)
            await session.window(BUDGET)
        await sessions.settled()
        assert (len(first.requests), len(second.requests)) == (1, 1)
        await other.compact(BUDGET)
        assert (len(first.requests), len(second.requests)) == (1, 2)

    run(test, first)


def test_a_manager_without_a_model_can_be_given_one_for_a_session() -> None:
    model = ScriptedModel(GOOD)

    async def main() -> None:
        async with await SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            await fill(session, 0.9)
            assert not (await session.preview_compact(BUDGET)).refused
            session.summarize_with(model)
            outcome = await session.compact(BUDGET)
            assert outcome.refused == ""
            assert len(model.requests) == 1

    asyncio.run(main())
