"""Epochs: a reset ends one and begins the next; history is handed over once, late messages are refused."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    entries,
    everything,
    grown,
    parcels,
    prompt,
    run,
    say,
    texts,
)
from turnstate import Message
from turnstate.context.policy import Budget
from turnstate.entry import Prompt
from turnstate.errors import Busy, EpochEnded, NotFound
from turnstate.log.records import Ending, contents
from turnstate.log.undo import undo_restore

ON_DISK = True

BUDGET = Budget(100_000)


@pytest.mark.req("G7", "F2", "F3")
@run
async def test_a_reset_ends_the_epoch_and_hands_its_history_over_once(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", user="u1", system="You help.")
    await say(session, "a", "b")
    harness.clock.advance(5_000)
    session = await session.reset()
    assert session._row.epoch == 2
    assert await texts(session) == []
    (parcel,) = await parcels(sessions.store)
    ending = contents(parcel)
    assert isinstance(ending, Ending)
    assert (ending.epoch, ending.last, ending.head, ending.user) == (1, "b", (1, 3), "u1")
    assert (ending.reason, ending.ended - ending.started) == ("reset", 5_000)
    session = await session.reset()
    assert len(await parcels(sessions.store)) == 1


@pytest.mark.req("F2")
@run
async def test_the_second_epoch_began_with_the_reset(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create()
    await say(session, "a")
    started = harness.clock.advance(5_000)
    session = await session.reset()
    await say(session, "b")
    await session.fork()
    await say(session, "c")
    harness.clock.advance(1_000)
    await session.end()
    endings = [contents(parcel) for parcel in await parcels(sessions.store)]
    times = {ending.epoch: (ending.started, ending.ended) for ending in endings if isinstance(ending, Ending)}
    assert times[2] == (started, started + 1_000)


@pytest.mark.req("G7")
@run
async def test_late_messages_of_the_old_turn_are_refused(harness: Harness) -> None:
    sessions, one = await harness.manager(), call()
    old, other = await sessions.create(id="s1"), await sessions.open("s1")
    await old.append(Message.user("go", id="go"), asks(one))
    session = await other.reset()
    before = await everything(session)
    for handle in (old, other):
        for late in (
            handle.append(Message.user("late")),
            handle.append(answers(answer(one))),
            handle.append(Message.user("late"), key="k", expected_version=1),
            handle.set_system("late"),
            handle.fork(),
            handle.rewind(to="go"),
            handle.undo(),
            handle.operate(undo_restore(1)),
            handle.reset(),
            handle.end(),
            handle.window(BUDGET),
            handle.preview(BUDGET),
            handle.compact(BUDGET),
            handle.preview_compact(BUDGET),
            handle.conversation(),
            handle.begin_tangent(),
            handle.leave_tangent(),
            handle.tangents(),
            handle.reopen_tangent("late"),
            handle.clear(),
            handle.note("late"),
            handle.change_settings(mcp_enabled=False),
            handle.lines(),
            handle.record_lines({"/late": None}),
            handle.snapshot(),
            handle.messages(),
            handle.messages(last=1),
            handle.branches(),
            handle.rename("late"),
            handle.tag("late"),
            handle.annotate({"late": 1}),
            handle.acquire(),
            handle.renew(),
            handle._handle.answer_interrupted_calls(),
        ):
            with pytest.raises(EpochEnded):
                await late
        await handle.release()
    assert await everything(session) == before


@pytest.mark.req("G5", "G7")
@run
async def test_a_reset_wins_over_a_lease_and_its_holder_is_told_at_its_next_call(harness: Harness) -> None:
    sessions = await harness.manager()
    holder, other = await sessions.create(id="s1"), await (await harness.manager()).open("s1")
    await say(holder, "a")
    await holder.window(BUDGET)
    async with holder.lease(seconds=60) as lease:
        session = await other.reset()
        row = await sessions.store.get(session._row.address)
        assert (row.fence > lease.fence, row.lease_until, row.holder) == (True, 0, "")
        for late in (holder.window(BUDGET), holder.messages(), holder.renew(), holder.acquire()):
            with pytest.raises(EpochEnded):
                await late
        with pytest.raises(EpochEnded):
            await say(holder, "late")
        await say(session, "b")
        async with session.lease():
            await say(session, "c")
    assert await texts(session) == ["b", "c"]
    assert len(await parcels(sessions.store)) == 1


@pytest.mark.req("G5", "G7")
@run
async def test_an_end_waits_for_a_lease(harness: Harness) -> None:
    sessions = await harness.manager()
    holder, other = await sessions.create(id="s1"), await sessions.open("s1")
    await say(holder, "a")
    await holder.acquire()
    with pytest.raises(Busy):
        await other.end()
    await say(holder, "b")


@pytest.mark.req("G7")
@run
async def test_the_late_answer_of_a_turn_whose_own_handle_was_reset_is_refused(harness: Harness) -> None:
    sessions = await harness.manager()
    shared = await sessions.create(id="s1")
    await shared.append(Message.user("go"))
    begun, reset = asyncio.Event(), asyncio.Event()

    async def turn() -> None:
        begun.set()
        await reset.wait()
        await shared.append(Message.assistant("late"))

    work = asyncio.create_task(turn())
    await begun.wait()
    session = await shared.reset()
    reset.set()
    with pytest.raises(EpochEnded):
        await work
    assert await texts(session) == []


@pytest.mark.req("G5", "G9")
@pytest.mark.parametrize("how", ["erase", "destroy"])
@run
async def test_what_is_erased_under_a_lease_is_gone_for_its_holder(harness: Harness, how: str) -> None:
    sessions = await harness.manager()
    holder = await sessions.create(id="s1", user="u1")
    await say(holder, "a")
    async with holder.lease():
        await (sessions.erase(user="u1") if how == "erase" else sessions.destroy("s1"))
        for late in (holder.append(Message.user("late")), holder.window(BUDGET), holder.renew()):
            with pytest.raises(NotFound):
                await late


@pytest.mark.req("G7", "F3")
@run
async def test_two_resets_at_once_offload_once(harness: Harness) -> None:
    sessions = await harness.manager()
    handles = [await sessions.create(id="s1")] + [
        await (await harness.manager()).open("s1") for _ in range(3)
    ]
    await say(handles[0], "a")
    outcomes = await asyncio.gather(*[handle.reset() for handle in handles], return_exceptions=True)
    assert sum(isinstance(outcome, EpochEnded) for outcome in outcomes) == 3
    assert len(await parcels(sessions.store)) == 1
    assert (await sessions.open("s1"))._row.epoch == 2


@pytest.mark.req("G7")
@pytest.mark.parametrize("prompts", [0, 1, 2])
@run
async def test_a_session_in_which_nothing_was_said_offloads_nothing(harness: Harness, prompts: int) -> None:
    sessions = await harness.manager()
    session = await sessions.create()
    for number in range(prompts):
        await session.set_system(f"You help {number}.")
    session = await session.reset()
    await session.end()
    assert await parcels(sessions.store) == []


@pytest.mark.req("G7")
@run
async def test_a_session_that_was_rewound_to_its_beginning_offloads_nothing(harness: Harness) -> None:
    sessions, one = await harness.manager(), call()
    session = await sessions.create(system="You help.")
    first = asks(one)
    await session.append(first, answers(answer(one)))
    await session.rewind(to=first.id)
    assert await texts(session) == []
    session = await session.reset()
    assert await parcels(sessions.store) == []


@pytest.mark.req("G7", "A1")
@pytest.mark.parametrize(("given", "expected"), [(None, "second"), ("third", "third"), ("", "")])
@run
async def test_a_reset_keeps_the_prompt_or_sets_another(
    harness: Harness, given: str | None, expected: str
) -> None:
    session = await (await harness.manager()).create(id="s1", system="first")
    await session.set_system("second")
    await say(session, "a")
    session = await session.reset(system=given)
    assert await entries(session) == [Prompt(expected)]
    fresh = await (await harness.manager()).open("s1")
    assert prompt(await fresh.window(BUDGET)) == expected


@pytest.mark.req("G7", "A1")
@run
async def test_a_reset_keeps_a_prompt_that_was_set_before_a_cut_and_has_none_where_there_was_none(
    harness: Harness,
) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", system="first")
    await grown(session, 30)
    await session.window(Budget(700))
    fresh = await sessions.open("s1")
    fresh = await fresh.reset()
    assert await entries(fresh) == [Prompt("first")]
    plain = await sessions.create()
    await say(plain, "a")
    plain = await plain.reset()
    assert await entries(plain) == []


@pytest.mark.req("F2")
@run
async def test_an_ended_session_stays_readable_takes_nothing_and_goes_on_after_a_reset(
    harness: Harness,
) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", system="You help.")
    await say(session, "a")
    await session.end("done")
    assert (session._row.ended, session._row.reason) == (harness.clock(), "done")
    for handle in (session, await sessions.open("s1")):
        assert await texts(handle) == ["a"]
        assert [message.text for message in (await handle.window(BUDGET)).messages] == ["You help.", "a"]
        for late in (
            handle.append(Message.user("late")),
            handle.set_system("late"),
            handle.fork(),
            handle.end(),
        ):
            with pytest.raises(EpochEnded):
                await late
    assert len(await parcels(sessions.store)) == 1
    session = await session.reset()
    assert (session._row.ended, session._row.epoch) == (None, 2)
    await say(session, "b")
    await session.end()
    assert len(await parcels(sessions.store)) == 2


@pytest.mark.req("F2", "F3")
@run
async def test_what_is_said_after_an_end_and_a_reset_under_a_lease_is_handed_over(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create()
    await say(session, "a")
    await session.acquire()
    await session.end()
    session = await session.reset()
    await session.acquire()
    await say(session, "b")
    session = await session.reset()
    assert len(await parcels(sessions.store)) == 2


@pytest.mark.req("F2")
@run
async def test_a_reset_after_the_end_hands_nothing_over_again(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    await say(session, "a")
    await session.end()
    (parcel,) = await parcels(sessions.store)
    await sessions.store.delivered(parcel.id)
    await session.reset()
    assert await parcels(sessions.store) == []
