"""What a store promises about leases and the outbox.

A lease admits one writer at a time, and its fence keeps out a writer that comes too late. A parcel enters the
outbox with its change, and can be claimed until it is delivered.
"""

from __future__ import annotations

from msgspec import structs

from ...errors import Busy, Conflict, Fenced, NotFound
from ...stores.port import Store
from ...stores.values import Address, Lease
from .scenes import (
    HERE,
    NOW,
    Scene,
    change,
    equal,
    holds,
    message,
    note,
    parcel,
    refused,
    scenario,
    session,
    unchanged,
)

# ruff: noqa: D102 - the name of a test is its sentence


class LeaseContract(Scene):
    """Leases and fences."""

    @scenario
    async def test_a_lease_has_a_fence_and_stands_in_the_session(self, store: Store) -> None:
        await store.create(session())
        lease = await store.acquire(HERE, holder="worker 1", until=NOW + 100, now=NOW)
        holds(lease.fence > 0, "a fence is above the one of a session that was never leased")
        row = await store.get(HERE)
        found = (row.fence, row.lease_until, row.holder, lease.until)
        equal(found, (lease.fence, NOW + 100, "worker 1", NOW + 100), "the lease in the session")

    @scenario
    async def test_while_a_lease_is_live_no_one_gets_another(self, store: Store) -> None:
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
    async def test_a_lease_is_renewed_until_another_worker_takes_over(self, store: Store) -> None:
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
        with refused(Fenced, claim="an old fence while no one holds the lease"):
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


# The outbox: a parcel enters with its change, and can be claimed until it is delivered.


# ruff: noqa: D102 - the name of a test is its sentence


async def filled(store: Store, *dues: int) -> None:
    """Add parcels p0, p1 … to the outbox of one session."""
    await store.create(session())
    await store.commit(change(parcels=tuple(parcel(f"p{n}", due=due) for n, due in enumerate(dues))))


async def taken(store: Store, now: int, *, until: int = NOW + 10**6, limit: int = 100) -> list[str]:
    """Claim parcels, and return their ids."""
    return [one.id for one in await store.take(now, until=until, limit=limit)]


class OutboxContract(Scene):
    """Parcels and their delivery."""

    @scenario
    async def test_parcels_go_in_with_their_change_and_not_when_it_is_refused(self, store: Store) -> None:
        await store.create(session())
        sent = parcel("p1", body=b'{"bytes":"\x00\xff"}', due=NOW + 5)
        with refused(Conflict):
            await store.commit(change(message("a"), parcels=(sent,), expected_version=7))
        equal(await store.parcels(), [], "the outbox after a refusal")
        await store.commit(change(message("a"), parcels=(sent,)))
        equal(await store.parcels(), [sent], "the outbox after the change")

    @scenario
    async def test_the_same_id_goes_in_only_once(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(parcels=(parcel("p"), parcel("p", body=b"second"))))
        await store.commit(change(parcels=(parcel("p", body=b"third", due=NOW + 9), parcel("q"))))
        equal(await store.parcels(), [parcel("p"), parcel("q")], "the first of each id")

    @scenario
    async def test_a_parcel_that_is_waiting_keeps_its_tries_when_it_is_sent_again(self, store: Store) -> None:
        await filled(store, NOW)
        await store.take(NOW, until=NOW + 60, limit=1)
        await store.commit(change(parcels=(parcel("p0"),)))
        equal([(one.due, one.tries) for one in await store.parcels()], [(NOW + 60, 1)], "the parcel")

    @scenario
    async def test_a_claimed_parcel_is_claimed_by_no_one_else_until_then(self, store: Store) -> None:
        await filled(store, NOW)
        (first,) = await store.take(NOW, until=NOW + 60, limit=10)
        equal(first, structs.replace(parcel("p0"), due=NOW + 60, tries=1), "what was taken")
        equal(await taken(store, NOW + 59), [], "a second taker")
        (again,) = await store.take(NOW + 60, until=NOW + 99, limit=10)
        equal((again.id, again.tries), ("p0", 2), "taken again when its taker did not come back")

    @scenario
    async def test_what_is_not_due_is_not_taken(self, store: Store) -> None:
        await filled(store, NOW + 1)
        equal(await taken(store, NOW), [], "before it is due")
        equal(await taken(store, NOW + 1), ["p0"], "when it is due")

    @scenario
    async def test_the_oldest_due_is_taken_first(self, store: Store) -> None:
        await filled(store, NOW + 3, NOW + 1, NOW + 2, NOW + 1, NOW + 9)
        equal(await taken(store, NOW + 5, limit=3), ["p1", "p3", "p2"], "the first three")
        equal(await taken(store, NOW + 5, limit=3), ["p0"], "the rest that is due")
        shown = [one.id for one in await store.parcels(limit=2)]
        equal(shown, ["p4", "p0"], "what waits, the oldest due first")

    @scenario
    async def test_what_was_delivered_is_gone(self, store: Store) -> None:
        await filled(store, NOW, NOW)
        await store.take(NOW, until=NOW + 60, limit=10)
        await store.delivered("p0")
        await store.delivered("p0")
        await store.delivered("nobody")
        equal([one.id for one in await store.parcels()], ["p1"], "what is left")

    @scenario
    async def test_what_failed_is_tried_again_at_its_time_and_says_why(self, store: Store) -> None:
        await filled(store, NOW)
        await store.take(NOW, until=NOW + 60, limit=10)
        await store.failed("p0", error="engine 'down'\n\N{PILE OF POO}", due=NOW + 30)
        await store.failed("nobody", error="", due=None)
        (one,) = await store.parcels()
        found = (one.error, one.due, one.tries, one.parked)
        equal(found, ("engine 'down'\n\N{PILE OF POO}", NOW + 30, 1, False), "the parcel that failed")
        equal(await taken(store, NOW + 29), [], "before its time")
        equal(await taken(store, NOW + 30), ["p0"], "at its time")

    @scenario
    async def test_what_is_parked_waits_until_it_is_revived(self, store: Store) -> None:
        await filled(store, NOW, NOW)
        await store.take(NOW, until=NOW + 60, limit=1)
        await store.failed("p0", error="no such user", due=None)
        equal(await taken(store, NOW + 10**9, limit=9), ["p1"], "a parked parcel is not taken")
        equal([one.id for one in await store.parcels(parked=True)], ["p0"], "what is parked")
        equal([one.id for one in await store.parcels(parked=False)], ["p1"], "what is not")
        await store.revive("p0", due=NOW + 5)
        (one,) = [one for one in await store.parcels() if one.id == "p0"]
        equal((one.due, one.tries, one.parked), (NOW + 5, 0, False), "the revived parcel")
        equal(await taken(store, NOW + 5), ["p0"], "it is taken again")

    @scenario
    async def test_only_what_is_parked_can_be_revived(self, store: Store) -> None:
        await filled(store, NOW)
        for id in ("p0", "nobody"):
            with refused(NotFound):
                await store.revive(id, due=NOW)
        equal(await store.parcels(), [parcel("p0")], "the parcel that was not parked")

    @scenario
    async def test_a_worker_of_one_tenant_takes_only_its_parcels(self, store: Store) -> None:
        there = Address("other", "s1")
        await filled(store, NOW)
        await store.create(session(tenant=there.tenant))
        await store.commit(change(at=there, parcels=(parcel("theirs", at=there),)))
        equal([one.id for one in await store.parcels(tenant="other")], ["theirs"], "shown to a tenant")
        found = await store.take(NOW, until=NOW + 9, limit=9, tenant="other")
        equal([one.id for one in found], ["theirs"], "taken for a tenant")
        equal(await store.take(NOW, until=NOW + 9, limit=9, tenant="nobody"), [], "for nobody")
        equal(await taken(store, NOW), ["p0"], "taken for all")
