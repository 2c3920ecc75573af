"""Compaction on request: a preview that is true, a model's words or the digest, and nothing half done."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    cuts,
    decisions,
    everything,
    grown,
    run,
)
from turnstate import Budget, Message, Policy, formats
from turnstate.context.cut import Strategy
from turnstate.context.window import Window
from turnstate.entry import Cut, Summary, Usage
from turnstate.errors import Conflict, ContextOverflow, EpochEnded, ModelFailed, SessionError
from turnstate.formats import ReceivedMessage
from turnstate.ids import utc
from turnstate.models import Finished, ModelRequest, UsageReported
from turnstate.session import Session
from turnstate.testing import ScriptedModel

BUDGET = Budget(20_000)
GOOD = "Goal: find the lost key.\nNext: look under the mat."
BAD = ["", "I'm sorry, I cannot do that.", "word " * 9_000, ModelFailed("down"), RuntimeError("boom")]


def valid(window: Window) -> bool:
    providers = map(formats.get, formats.names())
    request = window.messages[-1].role == "user"
    return all(
        not provider.validate(provider.render(window.messages), request=request) for provider in providers
    )


def summaries(window: Window) -> list[str]:
    return [message.text for message in window.messages if message.kind == "summary"]


async def shown(session: Session) -> bytes:
    """Return the window that comes next as bytes; nothing is written."""
    return msgspec.json.encode((await session.preview(BUDGET)).messages)


@pytest.mark.req("D5")
@run
async def test_a_compaction_keeps_the_newest_exchanges_and_puts_a_digest_before_them(
    harness: Harness,
) -> None:
    session = await (await harness.manager()).create(system="You keep a lighthouse.")
    said = await grown(session, 10)
    done = await session.compact(BUDGET, strategy=Strategy(keep=3))
    window = await session.window(BUDGET)
    assert [message.kind or message.role for message in window.messages[:2]] == ["prompt", "summary"]
    assert list(window.messages[2:]) == said[14:]
    assert done.summary in window.messages[1].text
    assert (done.source, done.refused, done.messages) == ("digest", "", 14)
    assert window.tokens == done.tokens_after < done.tokens_before
    assert valid(window)
    assert await session.messages() == said


@pytest.mark.req("D5")
@run
async def test_what_a_compaction_covers_and_costs_is_recorded(harness: Harness) -> None:
    model = ScriptedModel(GOOD, name="gpt-4o")
    session = await (await harness.manager(model=model)).create()
    said = await grown(session, 10)
    done = await session.compact(BUDGET, strategy=Strategy(keep=2), focus="the key")
    cut, summary = await decisions(session)
    assert isinstance(cut, Cut)
    assert isinstance(summary, Summary)
    assert cut == done.cut
    assert cut.covers == (said[0].id, said[15].id)
    assert cut.asked == {
        "operation": "compact",
        "keep": 2,
        "focus": "the key",
        "before": done.tokens_before,
        "after": done.tokens_after,
    }
    assert (summary.cut, summary.text) == (cut.id, GOOD)
    asked = model.requests[0].messages
    prompt = hashlib.sha256(f"{asked[0].text}\0{asked[1].text}".encode()).hexdigest()
    assert summary.source == {"model": "gpt-4o", "prompt": prompt, "focus": "the key"}
    assert done.tokens_after == (await session.window(BUDGET)).tokens


@pytest.mark.req("D5")
@run
async def test_a_preview_writes_nothing_and_is_what_then_happens(harness: Harness) -> None:
    session = await (await harness.manager(model=ScriptedModel())).create()
    await grown(session, 10)
    before = await everything(session)
    for keep in (0, 1, 4):
        strategy = Strategy(keep=keep)
        looked = await session.preview_compact(BUDGET, strategy=strategy)
        assert await everything(session) == before
        done = await session.compact(BUDGET, strategy=strategy, model=False)
        assert looked.time is None
        assert done.time == utc(harness.clock())
        assert structs.replace(done, time=None) == looked
        await session.undo()
        before = await everything(session)


@pytest.mark.req("D5")
@run
async def test_the_focus_reaches_the_prompt(harness: Harness) -> None:
    model = ScriptedModel(GOOD)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 10)
    await session.compact(BUDGET, focus="the lamp of the north tower")
    asked = model.requests[0].messages[-1].text
    assert "Give most room to this: the lamp of the north tower" in asked


@pytest.mark.req("D5")
@run
async def test_a_good_summary_by_a_model_stands_in_the_place_of_the_digest(harness: Harness) -> None:
    session = await (await harness.manager(model=ScriptedModel(GOOD))).create()
    await grown(session, 10)
    done = await session.compact(BUDGET)
    assert (done.source, done.summary, done.refused) == ("model", GOOD, "")
    window = await session.window(BUDGET)
    assert [GOOD in text for text in summaries(window)] == [True]
    assert valid(window)


@pytest.mark.req("D5", "M2")
@run
async def test_what_a_request_for_a_summary_used_is_an_entry_of_its_own_whatever_came_of_it(
    harness: Harness,
) -> None:
    told = [UsageReported(input=900, output=40, cached=8), Finished()]
    for words in (GOOD, ""):
        session = await (await harness.manager(model=ScriptedModel([words, *told]))).create()
        said = await grown(session, 10)
        learned = {"scripted": {"ratio": 1.25}}
        reported = Usage(input=5, output=6, model="scripted", calibration=learned)
        reply = ReceivedMessage.of(Message.assistant("Here it is."), reported)
        await session.append(Message.user("And now?"), reply)
        done = await session.compact(BUDGET)
        assert (done.source == "model") == bool(words)
        usages = [one.entry for one in await session.entries(kinds=["usage"])]
        assert [getattr(one, "is_of_reply", None) for one in usages] == [True, False]
        details = {"purpose": "summary", "cut": done.cut.id}
        assert usages[1] == Usage(
            input=900, output=40, cached=8, model="scripted", details=details, calibration=learned
        )
        other = await (await harness.manager()).open(session.id)
        assert (await other._handle.calibrations())[0] == learned
        state = await other.conversation()
        assert state.history[-1].request_metadata == reported
        assert len(await session.messages()) == len(said) + 2


@pytest.mark.req("D5")
@run
async def test_a_model_is_not_asked_where_nobody_wants_it(harness: Harness) -> None:
    model = ScriptedModel(GOOD)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 10)
    assert (await session.compact(BUDGET, model=False)).source == "digest"
    assert model.requests == []


@pytest.mark.req("D4", "D5")
@pytest.mark.parametrize("reply", BAD)
@run
async def test_a_bad_summary_is_refused_and_the_digest_stands(harness: Harness, reply: Any) -> None:
    model = ScriptedModel(*[reply] * 9)
    session = await (await harness.manager(model=model)).create()
    said = await grown(session, 10)
    done = await session.compact(BUDGET)
    assert done.source == "digest"
    assert done.summary == done.cut.summary
    assert done.refused
    assert [type(one) for one in await decisions(session)] == [Cut]
    assert await session.messages() == said
    window = await session.window(BUDGET)
    assert [done.summary in text for text in summaries(window)] == [True]
    assert session.notices == ()  # it is one failure, however often it was tried


@pytest.mark.req("D4")
@run
async def test_a_summary_that_is_longer_than_what_it_covers_is_refused(harness: Harness) -> None:
    model = ScriptedModel(*["Goal: greet. " * 12] * 3)
    session = await (await harness.manager(model=model)).create()
    await session.append(
        Message.user("hi"), Message.assistant("hi"), Message.user("?"), Message.assistant("!")
    )
    done = await session.compact(BUDGET, strategy=Strategy(keep=1))
    assert done.source == "digest"
    assert "what it replaces" in done.refused


@pytest.mark.req("D4")
@run
async def test_a_model_that_was_left_alone_is_not_asked_again(harness: Harness) -> None:
    model = ScriptedModel(*[ModelFailed("down")] * 12)
    session = await (await harness.manager(model=model)).create()
    for _ in range(4):
        await grown(session, 10)
        done = await session.compact(BUDGET)
    assert len(model.requests) == 9  # three times for each of three
    assert done.source == "digest"
    assert "3 times in a row" in done.refused
    assert "3 times" in session.notices[0]


@pytest.mark.req("D4")
@run
async def test_one_success_is_enough_to_trust_a_model_again(harness: Harness) -> None:
    model = ScriptedModel("", "", GOOD, "", "", GOOD)
    session = await (await harness.manager(model=model)).create()
    for source in ("digest", "digest", "model") * 2:
        await grown(session, 10)
        assert (await session.compact(BUDGET)).source == source
    assert session.notices == ()


@pytest.mark.req("D4")
@run
async def test_a_model_that_does_not_answer_in_time_costs_nothing_but_time(harness: Harness) -> None:
    model = ScriptedModel(*[GOOD] * 3, hold=asyncio.Event())
    session = await (await harness.manager(model=model)).create()
    said = await grown(session, 10)
    done = await session.compact(BUDGET, patience=0.01)
    assert done.source == "digest"
    assert "no summary within" in done.refused
    assert await session.messages() == said
    assert len(model.requests) == 1


@pytest.mark.req("D2", "D4", "D5")
@run
async def test_a_compaction_that_a_reset_overtakes_writes_nothing(harness: Harness) -> None:
    gate = asyncio.Event()
    sessions = await harness.manager(model=ScriptedModel(GOOD, hold=gate))
    session = await sessions.create()
    await grown(session, 10)
    compacting = asyncio.create_task(session.compact(BUDGET))
    await asyncio.sleep(0.01)
    other = await (await sessions.open(session.id)).reset()
    await other.append(Message.user("a new day"))
    before = await everything(other)
    gate.set()
    with pytest.raises(EpochEnded):
        await compacting
    assert await everything(other) == before


@pytest.mark.req("D2", "D4", "D5")
@run
async def test_a_compaction_that_another_cut_overtakes_is_a_conflict_and_writes_nothing(
    harness: Harness,
) -> None:
    gate = asyncio.Event()
    sessions = await harness.manager(model=ScriptedModel(GOOD, hold=gate))
    session = await sessions.create()
    await grown(session, 20)
    compacting = asyncio.create_task(session.compact(BUDGET))
    await asyncio.sleep(0.01)
    other = await (await harness.manager()).open(session.id)
    assert (await other.window(Budget(700))).decisions
    before = await everything(other)
    gate.set()
    with pytest.raises(Conflict, match="nothing was compacted"):
        await compacting
    assert await everything(other) == before
    assert (await session.compact(BUDGET, model=False)).source == "digest"


@pytest.mark.req("D2", "D5")
@run
async def test_a_compaction_of_what_a_rewind_took_away_writes_nothing(harness: Harness) -> None:
    gate = asyncio.Event()
    sessions = await harness.manager(model=ScriptedModel(GOOD, hold=gate))
    session = await sessions.create()
    said = await grown(session, 10)
    compacting = asyncio.create_task(session.compact(BUDGET))
    await asyncio.sleep(0.01)
    other = await sessions.open(session.id)
    await other.rewind(to=said[3].id)
    gate.set()
    with pytest.raises(Conflict):
        await compacting
    assert await cuts(other) == []
    assert await other.messages() == said[:4]


@pytest.mark.req("D5")
@run
async def test_a_compaction_may_end_with_an_answer_that_only_windows_have(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    look = call("look")
    await session.append(Message.user("look"), Message.assistant("", tool_calls=[look]))
    await session.append(Message.user("never mind"), Message.assistant("as you wish"))
    done = await session.compact(BUDGET, strategy=Strategy(keep=1))
    assert done.messages == 3  # the call's answer is not in the log
    assert done.cut.covers[1] not in [message.id for message in await session.messages()]
    assert [message.text for message in (await session.window(BUDGET)).messages][1:] == [
        "never mind",
        "as you wish",
    ]


@pytest.mark.req("D5")
@run
async def test_what_is_said_while_the_model_writes_stays_behind_the_cut(harness: Harness) -> None:
    gate = asyncio.Event()
    sessions = await harness.manager(model=ScriptedModel(GOOD, hold=gate))
    session = await sessions.create()
    said = await grown(session, 10)
    compacting = asyncio.create_task(session.compact(BUDGET, strategy=Strategy(keep=0)))
    await asyncio.sleep(0.01)
    other = await sessions.open(session.id)
    meanwhile = Message.user("meanwhile")
    await other.append(meanwhile)
    gate.set()
    assert (await compacting).source == "model"
    window = await session.window(BUDGET)
    assert [message.text for message in window.messages[1:]] == ["meanwhile"]
    assert await session.messages() == [*said, meanwhile]
    assert valid(window)


@pytest.mark.req("D5")
@run
async def test_a_model_that_cannot_take_a_long_request_gets_shorter_ones(harness: Harness) -> None:
    def picky(request: ModelRequest) -> str | ModelFailed:
        length = len(request.messages[-1].text)
        return GOOD if length < 20_000 else ModelFailed(f"{length} characters are too many")

    model = ScriptedModel(*[picky] * 3)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 100, words=1_000)
    done = await session.compact(Budget(200_000), strategy=Strategy(truncate=False))
    lengths = [len(request.messages[-1].text) for request in model.requests]
    assert len(lengths) == 3
    assert lengths[0] > 2 * lengths[1] > 4 * lengths[2]
    assert (done.source, done.summary) == ("model", GOOD)
    assert session.notices == ()


@pytest.mark.req("D5")
@run
async def test_a_model_that_can_take_no_request_at_all_leaves_the_digest(harness: Harness) -> None:
    model = ScriptedModel(*[ModelFailed("too long")] * 3)
    session = await (await harness.manager(model=model)).create()
    await grown(session, 50)
    done = await session.compact(BUDGET)
    assert done.source == "digest"
    assert "too long" in done.refused
    assert done.tokens_after < done.tokens_before


@pytest.mark.req("D5")
@run
async def test_a_conversation_that_is_over_the_budget_is_compacted_from_its_beginning(
    harness: Harness,
) -> None:
    model = ScriptedModel(GOOD)
    session = await (await harness.manager(model=model)).create()
    said = await grown(session, 100)
    done = await session.compact(Budget(1_500), strategy=Strategy(keep=3))
    assert done.messages == 194
    assert done.tokens_before > 1_500 > done.tokens_after
    assert done.cut.covers == (said[0].id, said[193].id)
    assert "question 3 " in model.requests[0].messages[-1].text
    assert [type(one) for one in await decisions(session)] == [Cut, Summary]
    assert list((await session.window(Budget(1_500))).messages[1:]) == said[194:]


@pytest.mark.req("D5", "C5")
@run
async def test_compaction_is_a_way_out_where_a_strict_policy_gives_up(harness: Harness) -> None:
    session = await (await harness.manager(policy=Policy(strict=True))).create()
    await grown(session, 8, words=300)
    with pytest.raises(ContextOverflow):
        await session.window(Budget(1_000))
    await session.compact(Budget(1_000), strategy=Strategy(keep=2))
    window = await session.window(Budget(1_000))
    assert [message.kind or message.role for message in window.messages] == [
        "summary",
        *["user", "assistant"] * 2,
    ]


@pytest.mark.req("D5")
@pytest.mark.parametrize(
    ("strategy", "whole"), [(Strategy(longest=200), False), (Strategy(truncate=False), True)]
)
@run
async def test_a_strategy_says_how_much_of_a_message_the_model_sees(
    harness: Harness, strategy: Strategy, whole: bool
) -> None:
    model = ScriptedModel(GOOD)
    session = await (await harness.manager(model=model)).create()
    await session.append(Message.user("begin " + "x" * 9_000 + " middle " + "x" * 9_000 + " end"))
    await session.append(Message.assistant("ok"))
    await grown(session, 3)
    await session.compact(BUDGET, strategy=strategy)
    record = model.requests[0].messages[-1].text
    assert ("begin" in record, " end" in record) == (True, True)
    assert (" middle " in record) is whole


@pytest.mark.req("D5")
@pytest.mark.parametrize("keep", [0, 1, 2, 3, 5])
@run
async def test_calls_and_results_are_never_parted(harness: Harness, keep: int) -> None:
    session = await (await harness.manager()).create()
    for number in range(6):
        one, two = call(), call("cat")
        await session.append(Message.user(f"question {number}"), asks(one, two))
        await session.append(answers(answer(two)), answers(answer(one)), Message.assistant("done"))
    await session.compact(BUDGET, strategy=Strategy(keep=keep))
    await session.append(Message.user("and?"))
    window = await session.window(BUDGET)
    assert valid(window)
    assert len(summaries(window)) == 1
    assert sum(message.role == "assistant" for message in window.messages) == keep


@pytest.mark.req("D5")
@run
async def test_calls_that_are_under_way_stay_and_can_be_answered(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 5)
    one = call()
    await session.append(Message.user("Look."), asks(one))
    await session.compact(BUDGET, strategy=Strategy(keep=0))
    await session.append(answers(answer(one, "found")))
    window = await session.window(BUDGET)
    assert valid(window)
    assert [message.role for message in window.messages[1:]] == ["user", "assistant", "tool"]


@pytest.mark.req("D5")
@run
async def test_a_conversation_that_is_short_enough_is_left_alone(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    with pytest.raises(SessionError, match="nothing to compact"):
        await session.compact(BUDGET)
    await grown(session, 2)
    before = await everything(session)
    for attempt in (session.compact, session.preview_compact):
        with pytest.raises(SessionError, match="nothing to compact"):
            await attempt(BUDGET)
    assert await everything(session) == before


@pytest.mark.req("D3", "D5")
@run
async def test_a_second_compaction_folds_the_first(harness: Harness) -> None:
    model = ScriptedModel(GOOD, "Goal: find the lost key, then the door.")
    session = await (await harness.manager(model=model)).create()
    for _ in range(2):
        await grown(session, 10)
        await session.compact(BUDGET)
    assert GOOD.splitlines()[0] in model.requests[1].messages[-1].text
    window = await session.window(BUDGET)
    assert len(summaries(window)) == 1
    assert "then the door" in summaries(window)[0]


@pytest.mark.req("D5")
@pytest.mark.parametrize("budget", [Budget(1_500), Budget(100_000), Budget.UNLIMITED])
@run
async def test_a_compaction_holds_under_every_budget_and_in_every_process(
    harness: Harness, budget: Budget
) -> None:
    session = await (await harness.manager()).create()
    said = await grown(session, 10)
    done = await session.compact(BUDGET)
    again = await (await harness.manager()).open(session.id)
    window = await again.window(budget)
    assert done.summary in window.messages[0].text
    assert list(window.messages[1:]) == said[16:]


@pytest.mark.req("D5")
@run
async def test_without_a_budget_the_one_of_the_last_window_counts(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    await grown(session, 10)
    assert (await session.compact(model=False)).cut.limit == Budget.UNLIMITED.limit
    await session.undo()
    await session.window(BUDGET)
    assert (await session.compact(model=False)).cut.limit == BUDGET.limit


LIMIT = 2_000


async def talked(session: Session, share: float) -> Window:
    """Talk until a window that is made after every turn takes this share of the budget."""
    window = await session.window(Budget(LIMIT))
    while window.tokens < share * LIMIT:
        await grown(session, 1, words=20)
        window = await session.window(Budget(LIMIT))
    return window


@pytest.mark.req("D2", "D5")
@run
async def test_with_a_model_the_summary_that_was_prepared_goes_in_before_the_budget_is_reached(
    harness: Harness,
) -> None:
    model = ScriptedModel(GOOD)
    sessions = await harness.manager(model=model, policy=Policy(warn_at=0.5, compact_at=0.7))
    session = await sessions.create()
    assert not (await talked(session, 0.5)).decisions
    await sessions.settled()
    assert len(model.requests) == 1
    assert await cuts(session) == []  # it waits until `compact`
    tokens = 0
    while not await cuts(session):
        tokens = (await session.preview(Budget(LIMIT))).tokens
        await grown(session, 1, words=20)
        window = await session.window(Budget(LIMIT))
    assert 0.6 * LIMIT < tokens < 0.75 * LIMIT
    assert [GOOD in text for text in summaries(window)] == [True]
    assert valid(window)


@pytest.mark.req("D2", "C1")
@run
async def test_below_the_warning_no_model_is_asked(harness: Harness) -> None:
    model = ScriptedModel()
    sessions = await harness.manager(model=model, policy=Policy(warn_at=0.9))
    session = await sessions.create()
    await talked(session, 0.8)
    await sessions.settled()
    assert model.requests == []


@pytest.mark.req("C1", "D5")
@run
async def test_without_a_model_nothing_is_cut_until_the_budget_is_exceeded(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    while not await cuts(session):
        before = await session.preview(Budget(LIMIT))
        assert before.tokens <= LIMIT
        await grown(session, 1, words=20)
        if (await session.preview(Budget.UNLIMITED)).tokens <= LIMIT:
            assert not (await session.window(Budget(LIMIT))).decisions
        else:
            assert (await session.window(Budget(LIMIT))).decisions
    exact = await (await harness.manager()).create()
    await grown(exact, 10)
    tokens = (await exact.preview(Budget.UNLIMITED)).tokens
    assert not (await exact.window(Budget(tokens))).decisions
    assert (await exact.window(Budget(tokens - 1))).decisions


@pytest.mark.req("C10", "D5")
@pytest.mark.parametrize(("mask", "hidden"), [(0.5, True), (1.0, False)])
@run
async def test_old_output_is_hidden_from_where_the_policy_says(
    harness: Harness, mask: float, hidden: bool
) -> None:
    session = await (await harness.manager(policy=Policy(mask_at=mask))).create()
    for number in range(12):
        one = call()
        await session.append(
            Message.user(f"question {number}"),
            asks(one),
            answers(answer(one, "line\n" * 90)),
            Message.assistant("k"),
        )
    whole = (await session.preview(Budget.UNLIMITED)).tokens
    window = await session.window(Budget(int(whole / 0.8)))
    assert [type(one).__name__ for one in window.decisions] == (["Mask"] if hidden else [])
    assert (window.tokens < whole) is hidden
    assert valid(window)
