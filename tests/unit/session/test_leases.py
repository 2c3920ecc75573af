"""Leases: one handle writes alone, is told when it no longer does, and holds on while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, answer, answers, asks, everything, grown, run, texts
from turnstate import Message
from turnstate.context.policy import Budget
from turnstate.errors import Busy, Fenced, InputError, SessionError
from turnstate.ids import CallId
from turnstate.message import ToolCallRequest
from turnstate.session import Session

pytestmark = pytest.mark.req("G5")

ON_DISK = True

SECOND = 1_000
NARROW = Budget(700)

WRITES: dict[str, Callable[[Session], Awaitable[object]]] = {
    "append": lambda session: session.append(Message.user("mine")),
    "append a result": lambda session: session.append(answers(answer("call_1"))),
    "a decision": lambda session: session.window(NARROW),
    "set_system": lambda session: session.set_system("mine"),
    "fork": lambda session: session.fork(),
    "rewind": lambda session: session.rewind(to="m1"),
    "undo": lambda session: session.undo(),
    "end": lambda session: session.end(),
}


async def prepared(harness: Harness) -> tuple[Session, Session]:
    """Return two handles of a session in which every kind of write is possible."""
    session = await (await harness.manager()).create(id="s1")
    await session.append(Message.user("go", id="m1"))
    await grown(session, 20)
    await session.fork()

    await session.append(asks(ToolCallRequest(id=CallId("call_1"), name="ls", args={})))
    return session, await (await harness.manager()).open("s1")


@pytest.mark.parametrize("write", WRITES)
@run
async def test_while_a_lease_is_live_others_are_told_that_it_is_busy(harness: Harness, write: str) -> None:
    holder, other = await prepared(harness)
    await holder.acquire(seconds=30, holder="worker 7")
    before = await everything(holder)
    with pytest.raises(Busy, match="worker 7"):
        await WRITES[write](other)
    assert await everything(holder) == before
    await WRITES[write](holder)


@pytest.mark.parametrize("write", WRITES)
@run
async def test_a_holder_that_was_taken_over_is_told_so_and_writes_nothing(
    harness: Harness, write: str
) -> None:
    zombie, other = await prepared(harness)
    await zombie.acquire(seconds=30)
    harness.clock.advance(30 * SECOND)
    await other.acquire(seconds=30)
    await other.release()
    before = await everything(other)
    with pytest.raises(Fenced):
        await WRITES[write](zombie)
    assert await everything(other) == before
    await zombie.release()
    await WRITES[write](zombie)


@pytest.mark.parametrize("write", WRITES)
@run
async def test_a_lease_that_ran_out_and_that_nobody_took_still_lets_its_holder_write(
    harness: Harness, write: str
) -> None:
    holder, other = await prepared(harness)
    await holder.acquire(seconds=30)
    harness.clock.advance(31 * SECOND)
    if write != "end":
        await other.append(Message.user("let me in"))
    await WRITES[write](holder)


@run
async def test_reading_needs_no_lease(harness: Harness) -> None:
    holder, other = await prepared(harness)
    await holder.acquire()
    await holder.append(answers(answer("call_1")))
    assert len(await texts(other)) == 43
    assert (await other.window(Budget(100_000))).messages[-1].role == "tool"
    assert (await other.preview(NARROW)).decisions


@run
async def test_a_lease_is_taken_over_when_it_runs_out_and_not_before(harness: Harness) -> None:
    holder, other = await prepared(harness)
    first = await holder.acquire(seconds=30)
    harness.clock.advance(30 * SECOND - 1)
    with pytest.raises(Busy):
        await other.acquire()
    harness.clock.advance(1)
    second = await other.acquire()
    assert second.fence > first.fence
    with pytest.raises(Busy):
        await holder.acquire()
    with pytest.raises(Fenced):
        await holder.renew()


@run
async def test_of_many_that_want_the_lease_one_gets_it(harness: Harness) -> None:
    session, other = await prepared(harness)
    handles = [session, other, *[await (await harness.manager()).open("s1") for _ in range(4)]]
    outcomes = await asyncio.gather(*[handle.acquire() for handle in handles], return_exceptions=True)
    assert sum(isinstance(outcome, Busy) for outcome in outcomes) == 5


@run
async def test_a_lease_that_is_renewed_is_held_for_longer(harness: Harness) -> None:
    holder, other = await prepared(harness)
    lease = await holder.acquire(seconds=30)
    harness.clock.advance(20 * SECOND)
    renewed = await holder.renew(seconds=30)
    assert (renewed.fence, renewed.until) == (lease.fence, harness.clock() + 30 * SECOND)
    harness.clock.advance(20 * SECOND)
    with pytest.raises(Busy):
        await other.append(Message.user("mine"))
    await holder.append(Message.user("mine"))


@run
async def test_a_lease_that_was_given_back_is_free_at_once(harness: Harness) -> None:
    holder, other = await prepared(harness)
    await holder.acquire(seconds=3_600)
    await holder.release()
    await other.append(Message.user("mine"))
    await holder.append(Message.user("mine, too"))
    await holder.release()


@run
async def test_giving_back_a_lease_that_was_taken_over_leaves_the_new_one(harness: Harness) -> None:
    holder, other = await prepared(harness)
    await holder.acquire(seconds=1)
    harness.clock.advance(1 * SECOND)
    await other.acquire(seconds=30)
    await holder.release()
    with pytest.raises(Busy):
        await holder.append(Message.user("mine"))
    await other.append(Message.user("mine"))


@run
async def test_renewing_without_a_lease_says_what_to_do(harness: Harness) -> None:
    session, _ = await prepared(harness)
    with pytest.raises(SessionError, match="acquire"):
        await session.renew()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9])
@run
async def test_a_time_that_cannot_be_held_is_refused(harness: Harness, seconds: float) -> None:
    session, _ = await prepared(harness)
    before = await everything(session)
    with pytest.raises(InputError):
        await session.acquire(seconds=seconds)
    with pytest.raises(InputError):
        async with session.lease(seconds=seconds):
            pass
    assert await everything(session) == before
    await session.acquire()
    with pytest.raises(InputError):
        await session.renew(seconds=seconds)


@run
async def test_a_block_holds_the_lease_and_gives_it_back_whatever_happens_in_it(harness: Harness) -> None:
    session, other = await prepared(harness)

    async def work(**fails: Any) -> None:
        async with session.lease():
            with pytest.raises(Busy):
                await other.append(Message.user("not now"))
            await session.append(Message.user("mine"))
            if fails:
                raise RuntimeError("broken off")

    await work()
    await other.append(Message.user("now"))
    with pytest.raises(RuntimeError):
        await work(fails=True)
    await other.append(Message.user("now"))


@run
async def test_a_block_that_is_cancelled_gives_the_lease_back(harness: Harness) -> None:
    session, other = await prepared(harness)
    inside = asyncio.Event()

    async def work() -> None:
        async with session.lease():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await other.append(Message.user("now"))


@run
async def test_a_lease_is_renewed_in_the_background_while_the_block_runs(harness: Harness) -> None:
    session, other = await prepared(harness)
    store, at = session._writer.store, session._row.address
    async with session.lease(seconds=0.06) as lease:
        for _ in range(3):
            before = (await store.get(at)).lease_until
            harness.clock.advance(50)
            while (await store.get(at)).lease_until == before:
                await asyncio.sleep(0.005)
        with pytest.raises(Busy):
            await other.append(Message.user("not now"))
        await session.append(Message.user("mine"))
        assert (await store.get(at)).fence == lease.fence
    await other.append(Message.user("now"))


@run
async def test_a_block_that_lost_its_lease_is_told_at_its_next_write_and_ends_quietly(
    harness: Harness,
) -> None:
    session, other = await prepared(harness)
    async with session.lease(seconds=30):
        harness.clock.advance(60 * SECOND)
        await other.acquire()
        with pytest.raises(Fenced):
            await session.append(Message.user("mine"))
    with pytest.raises(Busy):
        await session.append(Message.user("mine"))
    await other.append(Message.user("theirs"))


@run
async def test_a_block_renews_its_lease_well_before_it_runs_out(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sleep, waits = await (await harness.manager()).create(id="s1"), asyncio.sleep, list[float]()

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    async with session.lease(seconds=300):
        while not waits:
            await sleep(0)
    assert waits[0] <= 150
