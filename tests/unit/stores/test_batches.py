"""Changes of one moment share a call, each gets its own answer, and those of a session stay in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from turnstate.errors import NotFound, StoreUnavailable
from turnstate.stores.batches import CALLS, FEW, TOGETHER, Batches, is_plain
from turnstate.stores.values import Address, Change, Fork, Record

Job = tuple[int, int]  # a session, and the number of the change


class Endpoint:
    """Answers jobs at random moments; some calls fail, and some jobs are left to be sent alone."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.done, self.sizes = list[Job](), list[int]()
        self.calls = self.most = 0

    async def alone(self, job: Job) -> Job:
        await self._under_way()
        self.done.append(job)
        return job

    async def together(self, jobs: Sequence[Job]) -> list[Job | Exception | None]:
        self.calls += 1
        self.most = max(self.most, self.calls)
        self.sizes.append(len(jobs))
        try:
            await self._under_way()
            if self.random.random() < 0.1:
                raise StoreUnavailable("broken")
            return [self._answer(job) for job in jobs]
        finally:
            self.calls -= 1

    def _answer(self, job: Job) -> Job | Exception | None:
        chance = self.random.random()
        if chance < 0.1:
            return None
        if chance < 0.2:
            return NotFound("refused")
        self.done.append(job)
        return job

    async def _under_way(self) -> None:
        for _ in range(self.random.randint(0, 4)):
            await asyncio.sleep(0)


async def scene(seed: int) -> Endpoint:
    endpoint = Endpoint(seed)
    random, batches = endpoint.random, Batches[Job](endpoint.alone, endpoint.together)
    answered, canceled = list[Job](), set[asyncio.Task[None]]()

    async def append(job: Job) -> None:
        try:
            answer = await batches.answer(Address("t", str(job[0])), job)
        except (NotFound, StoreUnavailable):
            return
        assert answer == job
        answered.append(job)

    tasks = list[asyncio.Task[None]]()
    for number in range(120):
        tasks.append(asyncio.create_task(append((random.randrange(12), number))))
        if random.random() < 0.3:
            await asyncio.sleep(0)
        if random.random() < 0.1:
            chosen = random.choice(tasks)
            chosen.cancel()
            canceled.add(chosen)
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    await batches.close()
    for task, outcome in zip(tasks, outcomes, strict=True):
        assert outcome is None or (isinstance(outcome, asyncio.CancelledError) and task in canceled), outcome
    assert set(answered) <= set(endpoint.done)
    assert len(endpoint.done) == len(set(endpoint.done))
    assert (batches._calls, batches._busy, list(batches._waiting)) == (0, set(), [])
    return endpoint


@pytest.mark.req("G5")
def test_everybody_gets_the_own_answer_whoever_fails_or_gives_up() -> None:
    for seed in range(30):
        endpoint = asyncio.run(scene(seed))
        assert endpoint.most <= CALLS
        assert max(endpoint.sizes) <= TOGETHER
        assert len(endpoint.sizes) < 100


@pytest.mark.req("G5")
def test_a_change_whose_caller_gave_up_is_not_sent_again() -> None:
    """A store whose server is gone would try for as long as it may, and closing it would wait for that."""

    async def scene() -> None:
        tried, done = list[Job](), list[Job]()
        is_back = asyncio.Event()

        async def alone(job: Job) -> Job:
            tried.append(job)
            await is_back.wait()
            done.append(job)
            return job

        async def together(jobs: Sequence[Job]) -> list[None]:
            return [None] * len(jobs)

        batches = Batches[Job](alone, together)
        jobs = [(0, 1), (0, 2), (1, 3), (2, 4)]  # two to a session, of which the second waits
        asked = [asyncio.create_task(batches.answer(Address("t", str(job[0])), job)) for job in jobs]
        while len(tried) < 3:
            await asyncio.sleep(0)
        for one in asked[:3]:
            one.cancel()
        await asyncio.wait(asked[:3])
        closing = asyncio.create_task(batches.close())
        is_back.set()
        assert await asked[3] == (2, 4)
        await closing
        assert (sorted(tried), done) == ([(0, 1), (1, 3), (2, 4)], [(2, 4)])
        assert (batches._calls, batches._busy, list(batches._waiting)) == (0, set(), [])

    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.req("G5")
def test_changes_of_a_session_are_sent_in_order() -> None:
    async def ordered(seed: int) -> None:
        random, done = Random(seed), list[Job]()

        async def alone(job: Job) -> Job:
            await asyncio.sleep(random.random() * 0.0002)
            done.append(job)
            return job

        async def together(jobs: Sequence[Job]) -> list[Job | None]:
            await asyncio.sleep(random.random() * 0.0002)
            left = {session for session in range(5) if random.random() < 0.3}  # to be sent alone
            done.extend(job for job in jobs if job[0] not in left)
            return [None if job[0] in left else job for job in jobs]

        batches = Batches[Job](alone, together)
        jobs = [(random.randrange(5), number) for number in range(100)]
        await asyncio.gather(*(batches.answer(Address("t", str(job[0])), job) for job in jobs))
        for session in range(5):
            assert [job for job in done if job[0] == session] == [job for job in jobs if job[0] == session]

    for seed in range(10):
        asyncio.run(ordered(seed))


def test_many_callers_and_the_server_work_at_the_same_time() -> None:
    sizes, under_way = list[int](), list[int]()

    async def scene() -> None:
        calls = 0

        async def together(jobs: Sequence[Job]) -> list[Job]:
            nonlocal calls
            calls += 1
            under_way.append(calls)
            sizes.append(len(jobs))
            for _ in range(20):  # iterations of the loop: time would depend on the machine
                await asyncio.sleep(0)
            calls -= 1
            return list(jobs)

        batches = Batches[Job](lambda job: together([job]), together)

        async def client(number: int) -> None:
            for turn in range(20):
                await batches.answer(Address("t", str(number)), (number, turn))

        await asyncio.gather(*map(client, range(2 * FEW)))

    asyncio.run(scene())
    assert sum(size for size in sizes if size >= FEW - 1) > 0.9 * sum(sizes), sizes
    assert max(sizes) == FEW, sizes
    assert under_way.count(CALLS) > len(sizes) / 4, under_way


@pytest.mark.parametrize("several", [False, True], ids=["at once", "after gathering"])
def test_closing_waits_for_a_call_in_the_task_of_its_caller(several: bool) -> None:
    async def scene() -> None:
        done, release = list[Job](), asyncio.Event()

        async def alone(job: Job) -> Job:
            await release.wait()
            done.append(job)
            return job

        async def together(jobs: Sequence[Job]) -> list[Job]:
            return [await alone(job) for job in jobs]

        batches = Batches[Job](alone, together)
        batches._several = several
        at = Address("t", "0")
        first = asyncio.create_task(batches.answer(at, (0, 0)))
        await asyncio.sleep(0)  # begins the call, or gathers
        closing = asyncio.create_task(batches.close())
        second = asyncio.create_task(batches.answer(at, (0, 1)))  # waits for the first
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        release.set()
        await asyncio.wait_for(closing, 60)
        assert done == [(0, 0), (0, 1)]
        assert await asyncio.gather(first, second) == done

    asyncio.run(scene())


@pytest.mark.parametrize("error", [StoreUnavailable("broken"), asyncio.CancelledError()], ids=repr)
def test_closing_ends_when_such_a_call_fails(error: BaseException) -> None:
    async def scene() -> None:
        release = asyncio.Event()

        async def alone(_: Job) -> Job:
            await release.wait()
            raise error

        async def together(jobs: Sequence[Job]) -> list[Job]:
            return list(jobs)

        batches = Batches[Job](alone, together)
        caller = asyncio.create_task(batches.answer(Address("t", "0"), (0, 0)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(batches.close())
        await asyncio.sleep(0)
        release.set()
        await asyncio.wait_for(closing, 60)
        with pytest.raises(type(error)):
            await caller

    asyncio.run(scene())


def test_only_appends_that_are_small_share_a_call() -> None:
    at, small = Address("t", "s"), Record(id="a", kind="message", body=b"x")
    assert is_plain(Change(at=at, now=1, records=(small,)))
    large = Record(id="a", kind="message", body=b"x" * 40_000)
    for change in (
        Change(at=at, now=1, records=(large,)),
        Change(at=at, now=1, select=1),
        Change(at=at, now=1, fork=Fork(parent=1, seq=1, operation="fork")),
        Change(at=at, now=1, next_epoch=True),
        Change(at=at, now=1, end="over"),
    ):
        assert not is_plain(change)
