from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit.memory.offload import (
    HERE,
    STORES,
    Moody,
    Notes,
    Scene,
    begin,
    end,
    evict,
    never,
    raising,
    said,
    scene,
)
from turnstate.errors import InvalidSetting, StoreUnavailable
from turnstate.memory import Evicted, SessionRecord, User, Worker, open_engine
from turnstate.memory import worker as foreign
from turnstate.memory.worker import MARGIN
from turnstate.stores.values import Address, Change, Parcel, Position

pytestmark = pytest.mark.req("F3")

Run = Callable[[Callable[[Scene], Awaitable[None]]], None]
SOON = 0.02


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a test on every store."""

    def run(test: Callable[[Scene], Awaitable[None]]) -> None:
        async def inside() -> None:
            async with scene(request.param, tmp_path) as here:
                await test(here)

        asyncio.run(inside())

    return run


async def ended(here: Scene, *texts: str) -> Parcel:
    await begin(here.store, said(*(texts or ("one", "two"))))
    return await end(here.store)


def test_what_is_due_is_delivered_and_leaves_the_outbox(run: Run) -> None:
    async def test(here: Scene) -> None:
        parcel, engine = await ended(here), Notes()
        assert await here.worker(engine).run_once() == {"delivered": 1}
        assert engine.ids == ["m1", "m2"]
        assert list(engine.keys) == [parcel.id]
        assert await here.store.parcels() == []

    run(test)


def test_nothing_due_is_nothing_done(run: Run) -> None:
    async def test(here: Scene) -> None:
        assert await here.worker(Notes()).run_once() == Counter()
        await ended(here)
        here.clock.set(1_999)
        assert await here.worker(Notes()).run_once() == Counter()
        assert len(await here.store.parcels()) == 1

    run(test)


def test_an_eviction_and_the_end_that_repeats_it_give_every_message_once(run: Run) -> None:
    async def test(here: Scene) -> None:
        await begin(here.store, said("one", "two", "three"))
        await evict(here.store, "m1", "m2", head=Position(1, 3), summary="One, two.")
        await end(here.store)
        engine = Notes()
        assert await here.worker(engine).run_once() == {"delivered": 2}
        assert engine.ids == ["m1", "m2", "m3"]
        assert engine.summaries == ["One, two."]

    run(test)


def test_a_worker_of_one_tenant_leaves_the_parcels_of_others(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        theirs = Address("other", "s1")
        await begin(here.store, said("theirs", prefix="n"), at=theirs)
        await end(here.store, at=theirs)
        engine = Notes()
        assert await here.worker(engine, tenant="other").run_once() == {"delivered": 1}
        assert engine.ids == ["n1"]

    run(test)


def test_an_engine_that_is_down_is_tried_again_later_and_later(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Moody(before=raising(ConnectionError("refused")), times=3)
        waits = []
        for _ in range(3):
            assert await here.worker(engine).run_once() == {"delayed": 1}
            (parcel,) = await here.store.parcels()
            assert (parcel.error, parcel.parked) == ("ConnectionError: refused", False)
            assert await here.worker(engine).run_once() == Counter()
            waits.append(parcel.due - here.clock())
            here.clock.set(parcel.due)
        assert [5_000 * 4**n // 2 <= wait <= 5_000 * 4**n for n, wait in enumerate(waits)] == [True] * 3
        assert await here.worker(engine).run_once() == {"delivered": 1}
        assert engine.ids == ["m1", "m2"]

    run(test)


def test_one_parcel_that_fails_does_not_hold_up_the_others(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        other = Address("default", "s2")
        await begin(here.store, said("else", prefix="n"), at=other)
        await end(here.store, at=other)
        engine = Moody(before=raising(ValueError("not this one")), times=1)
        assert await here.worker(engine).run_once() == {"delayed": 1, "delivered": 1}

    run(test)


def test_what_keeps_failing_is_parked_with_its_reason_where_it_can_be_seen(run: Run) -> None:
    async def test(here: Scene) -> None:
        parcel, engine = await ended(here), Moody(before=raising(ConnectionError("refused")))
        for _ in range(8):
            await here.worker(engine).run_once()
            here.later()
        assert here.results == ["delayed"] * 7 + ["parked"]
        assert await here.worker(engine).run_once() == Counter()
        (parked,) = await here.store.parcels(parked=True)
        assert (parked.id, parked.error, parked.tries) == (parcel.id, "ConnectionError: refused", 8)

    run(test)


def test_a_revived_parcel_is_tried_as_if_it_were_new(run: Run) -> None:
    async def test(here: Scene) -> None:
        parcel, engine = await ended(here), Moody(before=raising(ConnectionError("refused")), times=2)
        assert await here.worker(engine, max_tries=1).run_once() == {"parked": 1}
        await here.store.revive(parcel.id, due=here.clock())
        assert await here.worker(engine, max_tries=2).run_once() == {"delayed": 1}
        here.later()
        assert await here.worker(engine, max_tries=2).run_once() == {"delivered": 1}
        assert engine.ids == ["m1", "m2"]

    run(test)


def test_an_engine_that_hangs_runs_out_of_time(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Moody(before=never, times=1)
        assert await here.worker(engine, timeout=SOON).run_once() == {"delayed": 1}
        assert here.told[0].error == "no answer within 0.02 s"
        here.later()
        assert await here.worker(engine).run_once() == {"delivered": 1}

    run(test)


class Panic(BaseException):
    pass


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), Panic("out of bounds")])
def test_an_engine_that_raises_what_ends_programs_does_not_end_the_worker(
    run: Run, error: BaseException
) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Moody(before=raising(error), times=1)
        assert await here.worker(engine).run_once() == {"delayed": 1}
        assert here.told[0].error.startswith(type(error).__name__)
        here.later()
        assert await here.worker(engine).run_once() == {"delivered": 1}

    run(test)


def test_an_engine_that_fails_after_it_has_kept_everything_keeps_it_once(run: Run, tmp_path: Path) -> None:
    async def test(here: Scene) -> None:
        await ended(here, "green tea", "two", "black tea")
        engine = await open_engine(f"builtin:{tmp_path}/memory.db")
        ingest, failures = engine.ingest, iter((1, 2))

        async def late(record: SessionRecord) -> None:
            await ingest(record)
            if next(failures, None):
                raise ConnectionError("lost the reply")

        engine.ingest = late  # type: ignore[method-assign]
        for _ in range(3):
            await here.worker(engine).run_once()
            here.later()
        assert here.results == ["delayed", "delayed", "delivered"]
        found = await engine.search(User("default", "u1"), "tea", 10)
        assert sorted(one.message for one in found) == ["m1", "m2", "m3"]
        await engine.close()

    run(test)


@pytest.mark.req("F2")
def test_a_worker_that_dies_before_it_acknowledges_leaves_the_parcel_to_another(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Moody(after=never, times=1)
        dying = asyncio.ensure_future(here.worker(engine).run_once())
        while not engine.deliveries or not engine.keys:
            await asyncio.sleep(0)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        assert await here.worker(engine).run_once() == Counter(), "its claim still holds"
        here.later()
        assert await here.worker(engine).run_once() == {"delivered": 1}
        assert (engine.deliveries, engine.ids) == (2, ["m1", "m2"])

    run(test)


def test_a_claim_outlasts_the_delivery_that_it_is_for(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        claims = []

        async def look() -> None:
            claims.extend(parcel.due - here.clock() for parcel in await here.store.parcels())

        await here.worker(Moody(before=look), timeout=30.0).run_once()
        assert claims == [(30 + foreign.GRACE + MARGIN) * 1000]

    run(test)


def test_two_workers_never_have_one_parcel_in_hand_at_once(run: Run) -> None:
    async def test(here: Scene) -> None:
        for number in range(20):
            at = Address("default", f"s{number}")
            await begin(here.store, said("one", prefix=f"{number}-"), at=at)
            await end(here.store, at=at)
        in_hand = Counter[str]()
        most = Counter[str]()

        class Watched(Notes):
            async def ingest(self, record: SessionRecord) -> None:
                in_hand[record.key] += 1
                most[record.key] = max(most[record.key], in_hand[record.key])
                await asyncio.sleep(0.001)
                await super().ingest(record)
                in_hand[record.key] -= 1

        engine = Watched()
        counts = await asyncio.gather(*(here.worker(engine).run_once() for _ in range(4)))
        assert sum(counts, Counter()) == {"delivered": 20}
        assert (engine.deliveries, set(most.values())) == (20, {1})

    run(test)


def test_a_parcel_that_workers_died_of_is_parked_and_not_tried_again(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        for _ in range(8):
            await here.store.take(here.clock(), until=here.clock() + 1, limit=1)
            here.later()
        engine = Notes()
        assert await here.worker(engine).run_once() == {"parked": 1}
        assert here.told[0].error == "started 8 times and never finished; the workers probably crashed"
        assert engine.deliveries == 0

    run(test)


@pytest.mark.req("G9")
def test_a_parcel_whose_session_was_erased_is_dropped(run: Run) -> None:
    async def test(here: Scene) -> None:
        parcel, engine = await ended(here), Notes()
        claimed = await here.store.take(here.clock(), until=here.clock(), limit=1)
        await here.store.remove(HERE)
        delivery = await here.worker(engine)._deliver(claimed[0])
        assert (delivery.result, engine.deliveries) == ("dropped", 0)
        assert (claimed[0].id, await here.store.parcels()) == (parcel.id, [])

    run(test)


@pytest.mark.req("G9")
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_delivered_of_a_session_while_it_was_erased_is_forgotten(run: Run, when: str) -> None:
    async def test(here: Scene) -> None:
        await ended(here)

        async def erase() -> None:
            await here.store.remove(HERE)

        engine = Moody(**{when: erase})  # type: ignore[arg-type]
        assert await here.worker(engine).run_once() == {"dropped": 1}
        assert engine.messages == {}

    run(test)


@pytest.mark.req("G9")
def test_an_engine_that_cannot_forget_an_erased_session_is_told(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Elephant(Moody):
        async def forget(self, whose: User | Address) -> int:
            raise ConnectionError("refused")

    async def test(here: Scene) -> None:
        await ended(here)

        async def erase() -> None:
            await here.store.remove(HERE)

        assert await here.worker(Elephant(after=erase)).run_once() == {"dropped": 1}
        assert "session s1 was erased while it was delivered" in caplog.text
        assert "ConnectionError: refused" in caplog.text

    run(test)


def test_a_parcel_that_cannot_be_read_is_parked_at_once(run: Run) -> None:
    async def test(here: Scene) -> None:
        parcel = await ended(here)
        odd = structs.replace(parcel, id="odd", body=b'{"version":99}')
        strange = structs.replace(parcel, id="strange", kind="parrot")
        await here.store.commit(Change(at=HERE, now=5, parcels=(odd, strange)))
        assert await here.worker(Notes()).run_once() == {"delivered": 1, "parked": 2}
        errors = {one.id: one.error for one in await here.store.parcels(parked=True)}
        assert "update Turnstate" in errors["odd"]
        assert "unknown kind 'parrot'" in errors["strange"]

    run(test)


@pytest.mark.req("F2")
def test_an_engine_that_is_down_neither_fails_nor_slows_a_reset(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Moody(before=never)
        stuck = asyncio.ensure_future(here.worker(engine).run_once())
        await asyncio.sleep(0.01)
        await end(here.store, now=5_000)
        assert (await here.store.get(HERE)).epoch == 3
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)

    run(test)


def test_a_pause_between_polls_is_a_number_of_seconds(run: Run) -> None:
    async def test(here: Scene) -> None:
        for interval in (0, -1, float("nan"), float("inf"), "5"):
            with pytest.raises(InvalidSetting, match="interval"):
                await here.worker(Notes()).run(asyncio.Event(), interval=interval)  # type: ignore[arg-type]

    run(test)


def test_a_worker_runs_until_it_is_told_to_stop(run: Run) -> None:
    async def test(here: Scene) -> None:
        engine, stop = Notes(), asyncio.Event()
        running = asyncio.ensure_future(here.worker(engine).run(stop, interval=0.001))
        await ended(here)
        while not here.told:
            await asyncio.sleep(0.001)
        stop.set()
        assert await running == {"delivered": 1}

    run(test)


def test_a_worker_that_is_told_to_stop_lets_the_parcel_in_hand_arrive_and_takes_no_other(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        await end(here.store, now=3_000)
        stop = asyncio.Event()

        async def told_to_stop() -> None:
            stop.set()
            await asyncio.sleep(0.01)

        engine = Moody(before=told_to_stop)
        assert await here.worker(engine).run(stop, interval=60.0) == {"delivered": 1}
        assert len(await here.store.parcels()) == 1

    run(test)


def test_a_store_that_is_away_for_a_while_is_asked_again(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    class Flaky:
        """A store whose outbox is away for two looks."""

        def __init__(self, here: Scene) -> None:
            self._store, self._left = here.store, 2

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
            if self._left:
                self._left -= 1
                raise StoreUnavailable("the file is locked")
            return await self._store.take(now, until=until, limit=limit, tenant=tenant)

    async def test(here: Scene) -> None:
        await ended(here)
        stop, engine = asyncio.Event(), Notes()
        worker = Worker(
            Flaky(here),  # type: ignore[arg-type]
            engine,
            clock=here.clock,
            on_delivery=lambda _: stop.set(),
        )
        assert await worker.run(stop, interval=0.001) == {"delivered": 1}
        assert caplog.text.count("the file is locked") == 2

    run(test)


def test_the_default_worker_has_a_clock_and_chance_of_its_own(run: Run) -> None:
    async def test(here: Scene) -> None:
        await ended(here)
        engine = Notes()
        assert await Worker(here.store, engine).run_once() == {"delivered": 1}

    run(test)


@pytest.mark.req("F1")
def test_any_class_with_the_six_methods_is_an_engine(run: Run) -> None:
    async def test(here: Scene) -> None:
        seen: list[Evicted | SessionRecord] = []

        class Small(Notes):
            async def _keep(self, handed: Evicted | SessionRecord) -> None:
                seen.append(handed)

        await ended(here)
        await here.worker(Small()).run_once()
        (record,) = seen
        assert (record.owner, record.address) == (User("default", "u1"), HERE)

    run(test)
