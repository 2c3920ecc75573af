"""The promises about leases: one writer at a time, and a fence that tells the late from the present."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from ..errors import Busy, Fenced, NotFound
from ..stores.port import Store
from ..stores.values import Address, Lease
from .contract_scenes import (
    HERE,
    NOW,
    Scene,
    change,
    equal,
    holds,
    message,
    note,
    refused,
    scenario,
    session,
    unchanged,
)

__all__ = ["LeaseContract"]


class LeaseContract(Scene):
    """Who may write."""

    @scenario
    async def test_a_lease_has_a_fence_and_stands_in_the_session(self, store: Store) -> None:
        await store.create(session())
        lease = await store.acquire(HERE, holder="worker 1", until=NOW + 100, now=NOW)
        holds(lease.fence > 0, "a fence is above the one of a session that was never leased")
        row = await store.get(HERE)
        found = (row.fence, row.lease_until, row.holder, lease.until)
        equal(found, (lease.fence, NOW + 100, "worker 1", NOW + 100), "the lease in the session")

    @scenario
    async def test_while_a_lease_is_live_nobody_gets_another(self, store: Store) -> None:
        await store.create(session())
        await store.acquire(HERE, holder="one", until=NOW + 100, now=NOW)
        for holder, now in [("two", NOW), ("two", NOW + 99), ("one", NOW + 1)]:
            async with unchanged(store):
                with refused(Busy, claim=f"{holder} at {now}"):
                    await store.acquire(HERE, holder=holder, until=NOW + 200, now=now)

    @scenario
    async def test_an_expired_lease_is_taken_over_with_a_higher_fence(self, store: Store) -> None:
        await store.create(session())
        fences = list[int]()
        for n in range(5):
            lease = await store.acquire(HERE, holder=f"w{n}", until=NOW + 10 * n + 10, now=NOW + 10 * n)
            fences.append(lease.fence)
        equal(fences, sorted(set(fences)), "fences only grow")
        equal((await store.get(HERE)).holder, "w4", "the last holder")

    @scenario
    async def test_fences_grow_also_after_a_release(self, store: Store) -> None:
        await store.create(session())
        first = await store.acquire(HERE, holder="one", until=NOW + 100, now=NOW)
        await store.release(HERE, first, now=NOW)
        row = await store.get(HERE)
        equal((row.lease_until, row.holder, row.fence), (0, "", first.fence), "after a release")
        second = await store.acquire(HERE, holder="two", until=NOW + 100, now=NOW)
        holds(second.fence > first.fence, "a fence is never given twice")

    @scenario
    async def test_a_lease_is_renewed_until_somebody_took_over(self, store: Store) -> None:
        await store.create(session())
        first = await store.acquire(HERE, holder="one", until=NOW + 10, now=NOW)
        renewed = await store.renew(HERE, first, until=NOW + 50)
        equal(renewed, Lease(fence=first.fence, until=NOW + 50), "the renewed lease")
        with refused(Busy):
            await store.acquire(HERE, holder="two", until=NOW + 99, now=NOW + 20)
        await store.acquire(HERE, holder="two", until=NOW + 99, now=NOW + 50)
        async with unchanged(store):
            with refused(Fenced):
                await store.renew(HERE, renewed, until=NOW + 500)

    @scenario
    async def test_releasing_what_was_taken_over_changes_nothing(self, store: Store) -> None:
        await store.create(session())
        first = await store.acquire(HERE, holder="one", until=NOW + 10, now=NOW)
        await store.acquire(HERE, holder="two", until=NOW + 99, now=NOW + 10)
        async with unchanged(store):
            await store.release(HERE, first, now=NOW)

    @scenario
    async def test_while_a_lease_is_live_only_its_holder_writes(self, store: Store) -> None:
        await store.create(session())
        first = await store.acquire(HERE, holder="one", until=NOW + 10, now=NOW)
        for refusal in (change(message("x")), change(note("x")), change(end="idle")):
            async with unchanged(store):
                with refused(Busy):
                    await store.commit(refusal)
        await store.commit(change(message("a"), fence=first.fence))
        await store.commit(change(message("b"), now=NOW + 10))
        await store.commit(change(message("c"), fence=first.fence, now=NOW + 20))
        second = await store.acquire(HERE, holder="two", until=NOW + 99, now=NOW + 30)
        for fence in (first.fence, 0, second.fence + 1):
            async with unchanged(store):
                with refused(Fenced, claim=f"fence {fence}"):
                    await store.commit(change(message("x"), fence=fence, now=NOW + 40))
        await store.commit(change(message("d"), fence=second.fence, now=NOW + 40))

    @scenario
    async def test_a_fence_outlives_its_lease(self, store: Store) -> None:
        await store.create(session())
        first = await store.acquire(HERE, holder="one", until=NOW + 10, now=NOW)
        second = await store.acquire(HERE, holder="two", until=NOW + 20, now=NOW + 10)
        await store.release(HERE, second, now=NOW)
        with refused(Fenced, claim="an old fence when nobody holds the lease"):
            await store.commit(change(message("x"), fence=first.fence, now=NOW + 30))

    @scenario
    async def test_a_lease_leaves_the_rest_of_the_session_alone(self, store: Store) -> None:
        before = await store.create(session(title="t", tags=("x",), meta={"a": 1}), [message("a")])
        lease = await store.acquire(HERE, holder="one", until=NOW + 10, now=NOW)
        await store.renew(HERE, lease, until=NOW + 20)
        row = await store.get(HERE)
        same = ("title", "tags", "meta", "active", "version", "seq", "total", "epoch", "branch")
        equal([getattr(row, name) for name in same], [getattr(before, name) for name in same], "the rest")

    @scenario
    async def test_a_session_that_is_not_there_cannot_be_leased(self, store: Store) -> None:
        nobody = Address(HERE.tenant, "nobody")
        with refused(NotFound):
            await store.acquire(nobody, holder="one", until=NOW + 10, now=NOW)
        with refused(NotFound):
            await store.renew(nobody, Lease(fence=1, until=NOW), until=NOW + 10)
