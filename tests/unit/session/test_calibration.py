"""Reported usage calibrates the budget in steps: live, reloaded and replayed alike, and without more cuts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, entries, run
from turnstate import Budget, Message
from turnstate.context.policy import Policy
from turnstate.entry import Cut, Usage
from turnstate.formats import ReceivedMessage
from turnstate.log.replay import replayed
from turnstate.report.context import read_path
from turnstate.session import Session
from turnstate.tokens import counter

BUDGET = Budget(3_000, output=200)


def reply(reported: int, cached: int = 0) -> ReceivedMessage:
    usage = Usage(input=reported, output=60, cached=cached, model="m-2026")
    said = Message.assistant("The lamp burned all night, and no ship came near. " * 6)
    return ReceivedMessage(**{name: getattr(said, name) for name in Message.__struct_fields__}, usage=usage)


async def asked(session: Session, number: int, factor: float, model: str = "m") -> Any:
    """Take a turn with a model that counts `factor` tokens for each of ours; return what was sent."""
    async with session.turn(f"Night {number}: how was it? " + "Tell all. " * 20, budget=BUDGET) as turn:
        window = await turn.window(model=model)
        assert window is not None
        await turn.reply(reply(int(window.tokens * factor)))
    return window


@pytest.mark.req("B2", "C8")
@run
async def test_the_budget_moves_in_steps_and_is_the_same_in_every_process(harness: Harness) -> None:
    session, rng, sent = await (await harness.manager()).create(id="s1"), Random(3), list[Any]()
    for number in range(60):
        sent.append(await asked(session, number, 1.4 * rng.uniform(0.97, 1.03)))
        if number % 10 == 9:
            for handle in (session, await (await harness.manager()).open("s1")):
                known, _counter = await handle._handle.calibrations()
                assert known["m"]["samples"] > number - 5
                assert 1.35 < known["m"]["factor"] < 1.45
                async with handle.turn(budget=BUDGET) as turn:
                    assert await turn.window(model="m") is None  # nothing is pending
    limits = [window.limit for window in sent]
    cuts = [number for number, window in enumerate(sent) if window.pending_cut]
    moves = [number for number in range(1, 60) if limits[number] != limits[number - 1]]
    assert limits[0] == BUDGET.limit
    assert all(1.33 < BUDGET.limit / limit < 1.47 for limit in limits[5:])
    assert len(cuts) > 5
    assert all(number - 1 in cuts for number in moves[1:])  # the first is the step to what was learned
    assert all(window.tokens * 1.44 <= BUDGET.window for window in sent[5:])
    written = [entry for entry in await entries(session) if isinstance(entry, Usage)]
    assert [(one.counted, one.limit) for one in written] == [(one.tokens, one.limit) for one in sent]


@pytest.mark.req("C8", "C9")
@run
async def test_a_replay_makes_each_window_under_the_limit_that_it_had(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    sent = [await asked(session, number, 1.3) for number in range(30)]
    path = await read_path(sessions.store, await sessions.store.get(session._row.address))
    again = replayed(path, counter("o200k_base"), Policy(), last=30)
    assert [(one.tokens, one.limit) for one in again] == [(one.tokens, one.limit) for one in sent]
    assert sum(one.pending_cut is not None for one in sent) > 1


@pytest.mark.req("B2")
@run
async def test_each_model_has_its_calibration_and_one_behind_a_cut_is_found(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    for number in range(6):
        await asked(session, number, 1.2, "short")
        await asked(session, number, 0.8, "long")
    for number in range(20):  # messages whose usage nobody reports: the newest usage is behind a cut
        await session.append(Message.user(f"Aside {number}. " * 20), Message.assistant("Noted. " * 60))
        await session.window(BUDGET)
    assert any(isinstance(entry, Cut) for entry in await entries(session))
    for handle in (session, await (await harness.manager()).open("s1")):
        known, name = await handle._handle.calibrations()
        assert {model: one["factor"] for model, one in known.items()} == {
            "short": pytest.approx(1.2, abs=0.01),
            "long": pytest.approx(0.8, abs=0.01),
        }
        assert name == "o200k_base"
    await session.set_model("claude-sonnet-4-5")  # another counter: what was learned does not hold
    window = await asked(session, 99, 1.0, "short")
    assert window.limit == BUDGET.limit


@run
async def test_a_reply_that_follows_no_request_and_a_small_request_teach_nothing(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    async with session.turn("Hi", budget=BUDGET) as turn:
        await turn.reply(reply(900))
    async with session.turn("Hi", budget=Budget(100_000)) as turn:
        await turn.window()
        await turn.reply(reply(900))
    assert (await session._handle.calibrations())[0] == {}
