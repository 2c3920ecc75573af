"""Compactions of one handle that overlap, and models that fail: one cut, one failure, nothing half done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, cuts, everything, grown, run
from turnstate import Budget, Message
from turnstate.context.cut import Strategy
from turnstate.errors import Conflict, ModelFailed, SessionError
from turnstate.models import ModelRequest
from turnstate.session import Session
from turnstate.testing import ScriptedModel

ON_DISK = True

BUDGET = Budget(20_000)
GOOD = "Goal: find the lost key.\nNext: look under the mat."
LONG = "Goal: greet everybody at length. " * 600


class Gated:
    """A session whose model begins to write, and waits there until it is let go."""

    def __init__(self, session: Session, model: ScriptedModel, gate: asyncio.Event) -> None:
        self.session, self.model, self.gate = session, model, gate

    async def begin(self, keep: int) -> asyncio.Task[Any]:
        """Begin a compaction, and return once the model was asked."""
        asked = len(self.model.requests)
        task = asyncio.create_task(self.session.compact(BUDGET, strategy=Strategy(keep=keep)))
        while len(self.model.requests) == asked:
            await asyncio.sleep(0)
        return task


async def gated(harness: Harness, replies: int = 1) -> Gated:
    gate = asyncio.Event()
    model = ScriptedModel(*[GOOD] * replies, hold=gate)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 12)
    return Gated(session, model, gate)


async def shown(session: Session) -> list[str]:
    return [message.text for message in (await session.preview(BUDGET)).messages]


@pytest.mark.req("D5", "G5")
@run
async def test_a_compaction_that_another_of_the_same_handle_overtook_is_refused(harness: Harness) -> None:
    scene = await gated(harness)
    stale = await scene.begin(keep=6)
    await scene.session.compact(BUDGET, strategy=Strategy(keep=1), model=False)
    before, window = await everything(scene.session), await shown(scene.session)
    scene.gate.set()
    with pytest.raises(Conflict, match="nothing was compacted"):
        await stale
    assert await everything(scene.session) == before
    assert await shown(scene.session) == window
    assert await scene.session.undo() == "compact"
    with pytest.raises(SessionError, match="nothing to undo"):
        await scene.session.undo()


@pytest.mark.req("D5", "G5")
@run
async def test_of_two_compactions_of_the_same_handle_that_ask_at_once_one_is_done(harness: Harness) -> None:
    scene = await gated(harness, replies=2)
    both = [await scene.begin(keep=6), await scene.begin(keep=1)]
    scene.gate.set()
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, Conflict)]
    (done,) = [one for one in outcomes if not isinstance(one, BaseException)]
    assert len(refused) == 1
    assert await cuts(scene.session) == [done.cut]


@pytest.mark.req("D5", "G5")
@pytest.mark.parametrize("what", ["clear", "compact", "tangent"])
@run
async def test_a_compaction_that_an_operation_of_the_same_handle_overtook_is_refused(
    harness: Harness, what: str
) -> None:
    scene = await gated(harness)
    stale = await scene.begin(keep=6)
    match what:
        case "clear":
            await scene.session.clear()
        case "compact":
            await scene.session.compact(BUDGET, strategy=Strategy(keep=1), model=False)
        case "tangent":
            await scene.session.begin_tangent(at=(await scene.session.messages())[3].id)
            await scene.session.append(Message.user("aside"))
    before = await everything(scene.session)
    scene.gate.set()
    with pytest.raises(Conflict, match="nothing was compacted"):
        await stale
    assert await everything(scene.session) == before


@pytest.mark.req("D5", "G5")
@run
async def test_a_compaction_during_which_the_one_before_it_was_undone_is_refused(harness: Harness) -> None:
    scene = await gated(harness)
    await scene.session.compact(BUDGET, strategy=Strategy(keep=8), model=False)
    stale = await scene.begin(keep=2)
    assert await scene.session.undo() == "compact"
    before, window = await everything(scene.session), await shown(scene.session)
    scene.gate.set()
    with pytest.raises(Conflict, match="nothing was compacted"):
        await stale
    assert await everything(scene.session) == before
    assert await shown(scene.session) == window


@pytest.mark.req("D5")
@run
async def test_what_the_same_handle_says_while_the_model_writes_stays_behind_the_cut(
    harness: Harness,
) -> None:
    scene = await gated(harness)
    task = await scene.begin(keep=0)
    await scene.session.append(Message.user("meanwhile"))
    scene.gate.set()
    assert (await task).source == "model"
    assert (await shown(scene.session))[1:] == ["meanwhile"]


REFUSED = [pytest.param("", id="empty"), pytest.param(LONG, id="longer")]


@pytest.mark.req("D4", "D5")
@pytest.mark.parametrize("reply", REFUSED)
@run
async def test_a_model_whose_words_do_not_do_is_asked_once(harness: Harness, reply: str) -> None:
    model = ScriptedModel(*[reply] * 3)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 12)
    done = await session.compact(BUDGET)
    assert (done.source, len(model.requests)) == ("digest", 1)
    assert done.refused
    assert session.notices == ()


@pytest.mark.req("D4", "D5")
@run
async def test_a_model_that_is_late_is_waited_for_once(harness: Harness) -> None:
    model = ScriptedModel(*[GOOD] * 3, hold=asyncio.Event())
    session = await (await harness.manager(model=model)).create()
    await grown(session, 12)
    done = await session.compact(BUDGET, patience=0.01)
    assert (done.source, len(model.requests)) == ("digest", 1)
    assert "no summary within" in done.refused
    assert session.notices == ()


@pytest.mark.req("D4", "D5")
@pytest.mark.parametrize("reply", [*REFUSED, pytest.param(ModelFailed("down"), id="error")])
@run
async def test_a_compaction_that_fails_counts_once_and_the_third_leaves_the_model_alone(
    harness: Harness, reply: Any
) -> None:
    tries = 3 if isinstance(reply, ModelFailed) else 1
    model = ScriptedModel(*[reply] * 3 * tries)
    session = await (await harness.manager(model=model)).create()
    for number in (1, 2, 3):
        assert session.notices == ()
        await grown(session, 12)
        assert (await session.compact(BUDGET)).source == "digest"
        assert len(model.requests) == number * tries
    assert "3 times in a row" in session.notices[0]
    await grown(session, 12)
    assert (await session.compact(BUDGET)).source == "digest"
    assert len(model.requests) == 3 * tries


@pytest.mark.req("D4", "D5")
@run
async def test_a_compaction_that_failed_does_not_keep_the_next_from_asking(harness: Harness) -> None:
    model = ScriptedModel("", GOOD)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 12)
    assert (await session.compact(BUDGET)).source == "digest"
    await grown(session, 12)
    done = await session.compact(BUDGET)
    assert (done.source, done.summary) == ("model", GOOD)


@pytest.mark.req("D4", "D5")
@run
async def test_after_an_error_less_is_shown_and_a_success_is_no_failure(harness: Harness) -> None:
    def picky(request: ModelRequest) -> str | ModelFailed:
        length = len(request.messages[-1].text)
        return GOOD if length < 20_000 else ModelFailed(f"{length} characters are too many")

    model = ScriptedModel(*[picky] * 12)
    session = await (await harness.manager(model=model)).create()
    for number in range(1, 5):
        await grown(session, 60, words=1_000)
        done = await session.compact(Budget(200_000), strategy=Strategy(truncate=False))
        assert (done.source, len(model.requests)) == ("model", 3 * number)
    lengths = [len(request.messages[-1].text) for request in model.requests[:3]]
    assert lengths == sorted(lengths, reverse=True)
    assert session.notices == ()


@pytest.mark.req("D4", "D5")
@run
async def test_an_error_and_then_words_that_do_not_do_are_one_failure(harness: Harness) -> None:
    model = ScriptedModel(ModelFailed("too long"), "", GOOD)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 12)
    done = await session.compact(BUDGET)
    assert (done.source, len(model.requests)) == ("digest", 2)
    assert "says nothing" in done.refused
    await grown(session, 12)
    assert (await session.compact(BUDGET)).source == "model"


@pytest.mark.req("D5", "C9")
@run
async def test_words_said_while_everything_is_compacted_are_shown_in_a_new_process(harness: Harness) -> None:
    scene = await gated(harness)
    compaction = await scene.begin(keep=0)
    await scene.session.append(Message.user("meanwhile"))
    scene.gate.set()
    await compaction
    live = await shown(scene.session)
    assert live[-1] == "meanwhile"
    other = await (await harness.manager()).open(scene.session.id)
    assert await shown(other) == live
    snapshot = await other.snapshot()
    assert [message.text for message in snapshot.messages][-1] == "meanwhile"
