"""What a store promises under concurrency: no entry is lost, one racer wins, cancellation harms no other.

Some tests open a second handle on the same store, as a second worker would.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import chain

from ...errors import AlreadyExists, Busy, Conflict, EpochEnded, Fenced, TurnstateError
from ...log.records import Ending, contents
from ...message import Message
from ...session import SessionManager
from ...stores.port import Store
from ...stores.values import MESSAGE, Address, Fork, Key, Lease, Position, Receipt, Span
from .scenes import (
    END,
    HERE,
    NOW,
    Scene,
    change,
    dump,
    equal,
    holds,
    message,
    note,
    parcel,
    scenario,
    session,
)


async def sound(store: Store, at: Address = HERE) -> list[str]:
    """Assert that branch 1 has no gaps and correct totals, and return the ids of its entries."""
    rows = await store.read(at, Span(1, 1, END))
    equal([row.seq for row in rows], list(range(1, len(rows) + 1)), "numbers without gaps")
    total = 0
    for row in rows:
        total += row.tokens
        equal(row.total, total, f"the running sum at {row.seq}")
    return [row.id for row in rows]


def won(outcomes: list[Receipt | BaseException]) -> list[Receipt]:
    """Return the receipts, and assert that all others failed with a conflict."""
    lost = [one for one in outcomes if not isinstance(one, Receipt)]
    holds(all(isinstance(one, Conflict) for one in lost), f"only conflicts: {lost!r:.500}")
    return [one for one in outcomes if isinstance(one, Receipt)]


class RaceContract(Scene):
    """Concurrent requests."""

    @scenario
    async def test_of_fifty_that_append_at_once_none_is_lost(self, store: Store) -> None:
        await store.create(session())
        changes = [change(message(f"{n} a", tokens=n), message(f"{n} b", tokens=1)) for n in range(50)]
        receipts = await asyncio.gather(*map(store.commit, changes))
        ids = await sound(store)
        equal(len(ids), 100, "entries")
        for n, receipt in enumerate(receipts):
            equal(ids[receipt.first - 1 : receipt.last], [f"{n} a", f"{n} b"], f"what the {n}th appended")
        equal(sorted(one.version for one in receipts), list(range(1, 51)), "versions")
        row = await store.get(HERE)
        equal((row.version, row.seq, row.total), (50, 100, 50 + sum(range(50))), "the session")

    @scenario
    async def test_two_workers_append_to_one_session(self, store: Store) -> None:
        await store.create(session())
        other = await self.connect()
        try:
            jobs = [
                worker.commit(change(message(f"{name} {n}", tokens=n)))
                for n in range(25)
                for name, worker in (("one", store), ("two", other))
            ]
            await asyncio.gather(*jobs)
            equal(len(await sound(store)), 50, "entries that the one sees")
            equal(await dump(other), await dump(store), "both see the same")
        finally:
            await other.close()

    @scenario
    async def test_of_those_that_expect_one_version_one_wins(self, store: Store) -> None:
        await store.create(session())
        other = await self.connect()
        try:
            for version in range(5):
                racers = [
                    worker.commit(change(message(f"{version} {n}"), expected_version=version))
                    for n, worker in enumerate([store, other] * 8)
                ]
                outcomes = await asyncio.gather(*racers, return_exceptions=True)
                equal([one.version for one in won(outcomes)], [version + 1], "the winner")
            equal(len(await sound(store)), 5, "one entry a round")
        finally:
            await other.close()

    @scenario
    async def test_of_those_that_expect_one_head_one_wins(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        racers = [
            store.commit(change(note(f"cut {n}", kind="cut"), expected_head=Position(1, 1)))
            for n in range(20)
        ]
        equal(len(won(await asyncio.gather(*racers, return_exceptions=True))), 1, "winners")
        equal(len(await sound(store)), 2, "entries")

    @scenario
    async def test_of_those_that_use_one_key_one_writes_and_all_hear_of_it(self, store: Store) -> None:
        await store.create(session())
        racers = [store.commit(change(message(f"m{n}"), key=Key("k", b"same"))) for n in range(20)]
        receipts = await asyncio.gather(*racers)
        equal(sorted(one.repeated for one in receipts), [False] + [True] * 19, "who wrote")
        equal({(one.first, one.last, one.version) for one in receipts}, {(1, 1, 1)}, "what all heard")
        equal(len(await sound(store)), 1, "entries")

    @scenario
    async def test_of_those_that_want_one_lease_one_gets_it(self, store: Store) -> None:
        await store.create(session())
        other = await self.connect()
        try:
            racers = [
                worker.acquire(HERE, holder=f"w{n}", until=NOW + 9, now=NOW)
                for n, worker in enumerate([store, other] * 8)
            ]
            outcomes = await asyncio.gather(*racers, return_exceptions=True)
            equal(sum(isinstance(one, Lease) for one in outcomes), 1, "who got it")
            equal(sum(isinstance(one, Busy) for one in outcomes), 15, "who did not")
        finally:
            await other.close()

    @scenario
    async def test_sixteen_resets_against_a_leased_turn_begin_an_epoch_each(self, store: Store) -> None:
        other = await self.connect()
        managers = [SessionManager(one, tenant=HERE.tenant) for one in (store, other)]
        first = await managers[0].create(id=HERE.session, system="Be brief.")
        said: dict[int, list[str]] = {1: [str(Message.user("first").id)]}
        await first.append(Message.user("first", id=said[1][0]))
        done = asyncio.Event()

        async def turn() -> None:
            while not done.is_set():
                session = await managers[0].open(HERE.session)
                with suppress(Busy, EpochEnded, Fenced):
                    async with session.lease():
                        while not done.is_set():
                            word = Message.user("and then")
                            await session.append(word)
                            said.setdefault(session.info.epoch, []).append(word.id)
                            await asyncio.sleep(0)  # a store in memory never waits

        async def reset(manager: SessionManager) -> int:
            while True:
                with suppress(EpochEnded):
                    return (await (await manager.open(HERE.session)).reset()).info.epoch

        try:
            async with asyncio.timeout(300):
                working = asyncio.create_task(turn())
                epochs = await asyncio.gather(*[reset(manager) for manager in managers * 8])
                done.set()
                await working
            equal(sorted(epochs), list(range(2, 18)), "one epoch for each reset")
            equal((await store.get(HERE)).epoch, 17, "the epoch that runs")
            roots = [branch.id for branch in await store.branches(HERE)]
            for epoch, root in enumerate(roots, start=1):
                rows = await store.read(HERE, Span(root, 1, END))
                kept = [row.id for row in rows if row.kind == MESSAGE]
                equal(kept, said.get(epoch, []), f"the messages of epoch {epoch}")
            endings = [contents(one) for one in await store.parcels(tenant=HERE.tenant, limit=END)]
            ended = sorted(one.epoch for one in endings if isinstance(one, Ending))
            equal(ended, sorted(epoch for epoch in said if epoch < 17), "what was handed over")
        finally:
            await other.close()

    @scenario
    async def test_of_those_that_make_one_session_one_makes_it(self, store: Store) -> None:
        racers = [store.create(session(title=f"{n}"), [message(f"m{n}")]) for n in range(10)]
        outcomes = await asyncio.gather(*racers, return_exceptions=True)
        equal(sum(isinstance(one, AlreadyExists) for one in outcomes), 9, "who was late")
        equal(await sound(store), [f"m{(await store.get(HERE)).title}"], "the entry of the one")

    @scenario
    async def test_a_parcel_is_taken_by_one_worker(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(parcels=tuple(parcel(f"p{n:02}") for n in range(40))))
        other = await self.connect()
        try:
            takers = [worker.take(NOW, until=NOW + 9, limit=5) for worker in [store, other] * 10]
            taken = [one.id for one in chain.from_iterable(await asyncio.gather(*takers))]
            equal(sorted(taken), [f"p{n:02}" for n in range(40)], "each parcel once")
        finally:
            await other.close()

    @scenario
    async def test_forks_at_once_get_branches_of_their_own(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        fork = Fork(parent=1, seq=1, operation="fork")
        jobs = [store.commit(change(message(f"m{n}"), fork=fork)) for n in range(20)]
        receipts = await asyncio.gather(*jobs)
        equal(sorted(one.branch for one in receipts), list(range(2, 22)), "branches")
        equal([one.id for one in await store.branches(HERE)], list(range(1, 22)), "branches of the session")

    @scenario
    async def test_a_refused_change_affects_no_other(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        bad = [
            change(message("a")),
            change(message("x"), expected_version=99),
            change(message("x"), select=7),
            change(message("\ud800")),
            change(message("x", tokens=2**70)),
        ]
        jobs = [store.commit(bad[n // 2 % 5] if n % 2 else change(message(f"m{n}"))) for n in range(40)]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        good = [one for one in outcomes[::2] if isinstance(one, Receipt)]
        equal(len(good), 20, f"those that were right ({outcomes[0]!r:.200})")
        holds({f"m{n}" for n in range(0, 40, 2)} <= set(await sound(store)), "all of them are there")

    @scenario
    async def test_a_canceled_append_is_there_or_not_and_harms_no_other(self, store: Store) -> None:
        await store.create(session())
        for n in range(30):
            mine = asyncio.create_task(store.commit(change(message(f"{n} a"), message(f"{n} b"))))
            theirs = asyncio.create_task(store.commit(change(message(f"{n} c"))))
            for _ in range(n % 6):
                await asyncio.sleep(0)
            mine.cancel()
            with suppress(asyncio.CancelledError):
                await mine
            await theirs
        receipt = await store.commit(change(message("last")))
        ids = await sound(store)
        equal((len(ids), ids[-1]), (receipt.last, "last"), "the last one")
        for n in range(30):
            holds(f"{n} c" in ids, "who was not canceled is there")
            equal(f"{n} a" in ids, f"{n} b" in ids, "who was canceled is there whole or not at all")

    @scenario
    async def test_readers_beside_writers_see_whole_changes(self, store: Store) -> None:
        await store.create(session())
        done = asyncio.Event()

        async def write() -> None:
            for n in range(30):
                await store.commit(change(*(message(f"{n} {m}") for m in range(3))))
            done.set()

        async def watch() -> None:
            while not done.is_set():
                equal(len(await sound(store)) % 3, 0, "a change is seen whole")
                row = await store.get(HERE)
                equal(row.seq, row.version * 3, "the session goes with its entries")
                await asyncio.sleep(0)

        async with asyncio.timeout(300):
            await asyncio.gather(write(), watch(), watch())

    @scenario
    async def test_removing_beside_appending_leaves_nothing_or_everything(self, store: Store) -> None:
        for n in range(5):
            at = Address(HERE.tenant, f"r{n}")
            await store.create(session(at.session))
            jobs = [store.commit(change(message(f"m{m}", words=["w"]), at=at)) for m in range(10)]
            await asyncio.gather(*jobs[:5], store.remove(at), *jobs[5:], return_exceptions=True)
            try:
                await store.get(at)
            except TurnstateError:
                pass
            else:
                raise AssertionError("the session was removed")
        equal(
            await store.search(HERE.tenant, ["w"], user=None, before=None, limit=9), [], "words that are left"
        )
