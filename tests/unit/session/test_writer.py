"""Writing for a session: what counts as activity, when it ends by itself, and what is seen under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    everything,
    grown,
    parcels,
    run,
    texts,
)
from turnstate import Message
from turnstate.context.policy import Budget
from turnstate.context.window import Window
from turnstate.errors import Busy, EpochEnded
from turnstate.ids import CallId
from turnstate.message import ToolCallRequest
from turnstate.session import Session
from turnstate.stores.values import Address
from turnstate.testing import FixedClock

ON_DISK = True

NARROW = Budget(700)
SECOND = 1_000


async def is_live(harness: Harness, id: str = "s1") -> bool:
    """Return True if a session goes on, without touching it."""
    row = await (await harness.manager()).store.get(Address("default", id))
    return row.ended is None


QUIET: dict[str, Callable[[Session], Awaitable[object]]] = {
    "reading": lambda session: session.messages(),
    "a window": lambda session: session.window(Budget(100_000)),
    "a cut": lambda session: session.window(NARROW),
    "a prompt": lambda session: session.set_system("You help."),
    "a title": lambda session: session.rename("title"),
    "a fork": lambda session: session.fork(),
    "an undo": lambda session: session.undo(),
    "a known result": lambda session: session.append(answers(answer("call_1", "done"))),
    "a known key": lambda session: session.append(Message.user("keyed"), key="k"),
    "another handle": lambda session: session.branches(),
}


@pytest.mark.req("G8")
@pytest.mark.parametrize("quiet", QUIET)
@run
async def test_only_an_accepted_message_is_activity(harness: Harness, quiet: str) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create(id="s1")
    await session.append(Message.user("keyed"), key="k")
    one = asks(ToolCallRequest(id=CallId("call_1"), name="ls", args={}))
    await session.append(one, answers(answer("call_1", "done")))
    await grown(session, 20)
    await session.fork()
    harness.clock.advance(6 * SECOND)
    await QUIET[quiet](session)
    harness.clock.advance(6 * SECOND)
    with pytest.raises(EpochEnded):
        await session.append(Message.user("too late"))
    assert not await is_live(harness)


@pytest.mark.req("G8")
@pytest.mark.parametrize("refusal", ["unknown result", "known id"])
@run
async def test_a_refused_message_is_no_activity(harness: Harness, refusal: str) -> None:
    sessions = await harness.manager(idle=10)
    session, known = await sessions.create(id="s1"), Message.user("known")
    await session.append(known)
    harness.clock.advance(6 * SECOND)
    with pytest.raises(Exception, match=r"call_x|already"):
        await session.append(answers(answer("call_x")) if refusal == "unknown result" else known)
    harness.clock.advance(6 * SECOND)
    with pytest.raises(EpochEnded):
        await session.append(Message.user("too late"))


@pytest.mark.req("G8")
@run
async def test_a_message_of_any_handle_is_activity_for_all(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session, other = await sessions.create(id="s1"), await sessions.open("s1")
    for _ in range(4):
        harness.clock.advance(9 * SECOND)
        await session.append(Message.user("here"))
        harness.clock.advance(9 * SECOND)
        await other.append(Message.user("there"))
    assert await texts(session) == ["here", "there"] * 4


@pytest.mark.req("G8")
@run
async def test_a_reset_begins_the_idle_time_anew(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create(id="s1")
    await session.append(Message.user("a"))
    harness.clock.advance(9 * SECOND)
    session = await session.reset()
    harness.clock.advance(9 * SECOND)
    await session.append(Message.user("b"))
    assert await texts(session) == ["b"]


@pytest.mark.req("G8")
@run
async def test_a_lease_that_was_given_back_does_not_keep_a_session_alive(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create(id="s1")
    await session.append(Message.user("a"))
    await session.acquire(seconds=600)
    await session.release()
    harness.clock.advance(10 * SECOND)
    with pytest.raises(EpochEnded):
        await session.append(Message.user("too late"))
    assert len(await parcels(sessions.store)) == 1


@pytest.mark.req("G8")
@run
async def test_a_session_is_not_ended_while_somebody_else_holds_it(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session, worker = await sessions.create(id="s1"), await sessions.open("s1")
    await session.append(Message.user("a"))
    await worker.acquire(seconds=60)
    harness.clock.advance(30 * SECOND)
    with pytest.raises(Busy):
        await session.append(Message.user("not now"))
    assert await is_live(harness)
    await worker.append(Message.assistant("still at it"))


@pytest.mark.req("G7", "G8")
@run
async def test_an_old_handle_leaves_a_later_epoch_alone_however_idle_that_is(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    old, session = await sessions.create(id="s1"), await sessions.open("s1")
    await session.append(Message.user("a"))
    session = await session.reset()
    await session.append(Message.user("b"))
    harness.clock.advance(60 * SECOND)
    before = await everything(session)
    with pytest.raises(EpochEnded):
        await asyncio.wait_for(old.append(Message.user("late")), 30)
    assert await everything(session) == before


@pytest.mark.req("G5", "G8")
@run
async def test_an_idle_end_and_an_append_at_the_same_moment_are_told_apart(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    handles = [await sessions.create(id="s1")] + [
        await (await harness.manager()).open("s1") for _ in range(3)
    ]
    await handles[0].append(Message.user("a"))
    harness.clock.advance(10 * SECOND)
    outcomes = await asyncio.gather(
        sessions.expire(),
        *[handle.append(Message.user("late")) for handle in handles],
        return_exceptions=True,
    )
    assert all(isinstance(outcome, EpochEnded) for outcome in outcomes[1:])
    assert await texts(handles[0]) == ["a"]
    assert len(await parcels(sessions.store)) == 1


def skewed(harness: Harness, seconds: int) -> FixedClock:
    """Return the clock of a worker that is ahead of the others."""
    return FixedClock(harness.clock() + seconds * SECOND)


BEHIND: dict[str, Callable[[Session], Awaitable[object]]] = {
    "window": lambda session: session.window(NARROW),
    "fork": lambda session: session.fork(),
    "rewind": lambda session: session.rewind(to="m1"),
    "reset": lambda session: session.reset(),
    "result": lambda session: session.append(answers(answer("call_1"))),
    "undo": lambda session: session.undo(),
}


@pytest.mark.req("G5")
@pytest.mark.parametrize("operation", BEHIND)
@run
async def test_a_holder_that_was_overtaken_by_a_fast_clock_sees_what_is_new_and_goes_on(
    harness: Harness, operation: str
) -> None:
    """The other worker's clock says that the lease is over, so it may write; ours says that it is not."""
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("a", id="m1"))
    await session.fork()
    await session.acquire(seconds=30)
    await session.append(
        Message.assistant(tool_calls=[ToolCallRequest(id=CallId("call_1"), name="ls", args={})])
    )
    await grown(session, 20)
    fast = await (await harness.manager(clock=skewed(harness, 60))).open("s1")
    news = Message.user("news")
    await fast.append(news)
    async with asyncio.timeout(60):
        came = await BEHIND[operation](session)
    if isinstance(came, Window):
        assert came.messages[-1] == news
    session = came if isinstance(came, Session) else session
    await session.append(Message.user("more"))


@pytest.mark.req("G6")
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@run
async def test_an_append_that_was_broken_off_and_came_through_is_seen_under_a_lease(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await session.acquire()
    task = asyncio.create_task(session.append(Message.user("broken off")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while (await session._writer.store.get(session._row.address)).version == 0:
        await asyncio.sleep(0.005)
    assert await texts(session) == ["broken off"]
    assert len((await session.window(NARROW)).messages) == 1
    assert session.version == 1


@pytest.mark.req("G5")
@run
async def test_under_a_lease_a_handle_knows_its_own_writes(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1")
    await session.acquire()
    await grown(session, 20)
    await session.window(NARROW)
    await session.append(Message.user("next", id="next"))
    assert (await texts(session))[-1] == "next"
    await session.rewind(to="next")
    await session.undo()
    session = await session.reset()
    await session.append(Message.user("fresh"))
    row = await session._writer.store.get(session._row.address)
    assert session._writer.row.head == row.head
    assert (session._row.version, session._row.epoch, session._row.ended) == (row.version, row.epoch, None)
