"""Sessions that are left idle end on access or by a sweep, once, and never while somebody holds them."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.session.session_fixtures import Harness, parcels, run, texts
from turnstate import Message
from turnstate.errors import ClockSkew, EpochEnded, InputError
from turnstate.ids import ClockWatch
from turnstate.log.records import Ending, contents
from turnstate.testing import FixedClock


@pytest.mark.req("G8")
@run
async def test_a_session_that_was_left_idle_ends_when_it_is_opened(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create(id="s1", user="u1")
    await session.append(Message.user("hello", id="m1"))
    harness.clock.advance(9_999)
    assert (await sessions.open("s1"))._row.ended is None
    harness.clock.advance(1)
    late = await sessions.open("s1")
    assert (late._row.ended, late._row.reason) == (harness.clock(), "idle")
    assert await texts(late) == ["hello"]
    (parcel,) = await parcels(sessions.store)
    ending = contents(parcel)
    assert isinstance(ending, Ending)
    assert (ending.reason, ending.last, ending.user, ending.epoch) == ("idle", "m1", "u1", 1)


@pytest.mark.req("G8")
@run
async def test_a_session_that_was_left_idle_ends_when_something_is_appended(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create()
    await session.append(Message.user("hello"))
    harness.clock.advance(10_000)
    with pytest.raises(EpochEnded):
        await session.append(Message.user("too late"))
    assert await texts(session) == ["hello"]
    session = await session.reset()
    await session.append(Message.user("again"))
    assert await texts(session) == ["again"]
    assert len(await parcels(sessions.store)) == 1


@pytest.mark.req("G8")
@pytest.mark.parametrize("idle", [0, None])
@run
async def test_zero_or_none_is_never(harness: Harness, idle: float | None) -> None:
    sessions = await harness.manager(idle=idle)
    session = await sessions.create()
    await session.append(Message.user("hello"))
    harness.clock.advance(10**12)
    assert list(await sessions.expire()) == []
    await session.append(Message.user("still here"))
    assert (await sessions.open(session.id))._row.ended is None


@pytest.mark.req("G8")
@run
async def test_a_session_may_have_an_idle_time_of_its_own(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    ids = [(await sessions.create(idle=idle)).id for idle in (None, 0, 5, 20)]
    harness.clock.advance(10_000)
    assert sorted(await sessions.expire()) == sorted([ids[0], ids[2]])


@pytest.mark.req("G8")
@pytest.mark.parametrize("idle", [-1, float("nan"), float("inf"), 1e12])
@run
async def test_an_idle_time_that_cannot_be_is_refused(harness: Harness, idle: float) -> None:
    with pytest.raises(InputError):
        await harness.manager(idle=idle)
    sessions = await harness.manager()
    with pytest.raises(InputError):
        await sessions.create(idle=idle)
    assert list(await sessions.list()) == []


@pytest.mark.req("G8", "F3")
@run
async def test_of_many_sweepers_exactly_one_ends_each_session(harness: Harness) -> None:
    managers = [await harness.manager(idle=10) for _ in range(4)]
    for number in range(12):
        session = await managers[0].create(id=f"s{number}")
        await session.append(Message.user("hello"))
    harness.clock.advance(10_000)
    ended = await asyncio.gather(*[manager.expire() for manager in managers])
    assert sorted(id for ids in ended for id in ids) == sorted(f"s{number}" for number in range(12))
    assert len(await parcels(managers[0].store)) == 12
    assert list(await managers[1].expire()) == []


@pytest.mark.req("G8")
@run
async def test_a_sweep_leaves_a_leased_session_and_ends_it_when_the_lease_is_over(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session = await sessions.create(id="s1")
    await session.append(Message.user("hello"))
    await session.acquire(seconds=60)
    harness.clock.advance(30_000)
    assert list(await sessions.expire()) == []
    assert (await sessions.open("s1"))._row.ended is None
    await session.append(Message.user("still at it"))
    await session.release()
    harness.clock.advance(9_000)
    assert list(await sessions.expire()) == []
    harness.clock.advance(1_000)
    assert list(await sessions.expire()) == ["s1"]


@pytest.mark.req("G8", "G4")
@run
async def test_a_sweep_ends_only_sessions_of_its_tenant(harness: Harness) -> None:
    sessions, other = await harness.manager(idle=10), await harness.manager(tenant="other", idle=10)
    await sessions.create(id="s1")
    harness.clock.advance(10_000)
    assert list(await other.expire()) == []
    assert list(await sessions.expire()) == ["s1"]


@pytest.mark.req("G7", "G8")
@run
async def test_an_idle_session_in_which_nothing_was_said_ends_and_offloads_nothing(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    await sessions.create(id="s1", system="You help.")
    harness.clock.advance(10_000)
    assert list(await sessions.expire()) == ["s1"]
    assert await parcels(sessions.store) == []


@pytest.mark.req("G8")
@run
async def test_a_clock_that_jumped_ahead_ends_nothing_until_it_agrees_for_a_minute(harness: Harness) -> None:
    steady = FixedClock(0)
    sessions = await harness.manager(idle=3_600, monotonic=steady)
    session = await sessions.create(id="s1")
    await session.append(Message.user("hello"))

    def pass_by(ms: int) -> None:
        harness.clock.advance(ms)
        steady.advance(ms)

    pass_by(60_000)
    assert list(await sessions.expire()) == []
    harness.clock.advance(24 * 3_600_000)  # as a wrong time server sets it
    for _ in range(3):
        with pytest.raises(ClockSkew, match="nothing was ended"):
            await sessions.expire()
        assert (await sessions.open("s1"))._row.ended is None
        await session.set_system("You are still here.")
        pass_by(19_000)
    harness.clock.advance(-24 * 3_600_000)  # and sets it right again
    with pytest.raises(ClockSkew):
        await sessions.expire()
    pass_by(59_999)
    with pytest.raises(ClockSkew):
        await sessions.expire()
    pass_by(1)
    assert list(await sessions.expire()) == []
    await session.append(Message.user("and here"))
    pass_by(24 * 3_600_000)
    assert list(await sessions.expire()) == ["s1"]


@pytest.mark.req("G8")
@run
async def test_a_new_manager_on_a_store_without_a_clock_trusts_its_own(harness: Harness) -> None:
    session = await (await harness.manager(idle=10)).create(id="s1")
    await session.append(Message.user("hello"))
    harness.clock.advance(24 * 3_600_000)
    assert list(await (await harness.manager(monotonic=FixedClock(0))).expire()) == ["s1"]


@pytest.mark.req("G8")
def test_a_watch_looks_at_jumps_ahead_and_not_at_small_steps_or_steps_back() -> None:
    wall, steady = FixedClock(), FixedClock(0)
    watch = ClockWatch(wall, steady)
    for ahead in (60_000, -3_600_000, 1_000, -1, 60_000):
        wall.advance(ahead + 500)
        steady.advance(500)
        assert watch.trusts(), ahead
    wall.advance(60_001)
    assert not watch.trusts()
    for step in (0, 1_001, 0, -1_001):  # it goes on being set: the minute begins anew
        wall.advance(step + 40_000)
        steady.advance(40_000)
        assert not watch.trusts()
    for passed, trusted in ((40_000, False), (20_000, True)):
        wall.advance(passed)
        steady.advance(passed)
        assert watch.trusts() is trusted


@pytest.mark.req("G8")
@run
async def test_a_lease_that_ends_counts_as_activity(harness: Harness) -> None:
    sessions = await harness.manager(idle=10)
    session, dead = await sessions.create(id="s1"), await sessions.create(id="s2")
    await dead.acquire(seconds=30)
    async with session.lease(seconds=60):
        harness.clock.advance(30_000)
        assert list(await sessions.expire()) == []
    harness.clock.advance(9_999)
    assert list(await sessions.expire()) == []
    assert (await sessions.open("s1"))._row.ended is None
    harness.clock.advance(1)
    assert sorted(await sessions.expire()) == ["s1", "s2"]
