"""What a store promises about the checks of a change: their order, and that a refusal changes nothing.

The order is session, epoch, key, fence, expected version and head: if several checks fail, the first one
decides the error. A repeated key returns the first receipt, even if fence or version have changed since.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from itertools import combinations
from typing import Any

from msgspec import structs

from ...errors import AlreadyExists, Busy, Conflict, EpochEnded, Fenced, KeyReused, NotFound
from ...stores.port import Store
from ...stores.values import KEY_LIFE, Address, Fork, Key, Position, Receipt
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

HOUR = 3600 * 1000
USED, OTHER = b"\x00digest\xff", b"another digest"

FAULTS: list[tuple[str, type[Exception], dict[str, Any]]] = [
    ("session", NotFound, {"at": Address(HERE.tenant, "nobody")}),
    ("creation", EpochEnded, {"created": 1}),
    ("epoch", EpochEnded, {"epoch": 1}),
    ("key", KeyReused, {"key": Key("used", OTHER)}),
    ("fence", Fenced, {"fence": 1}),
    ("no fence", Busy, {"fence": None}),
    ("version", Conflict, {"expected_version": 9}),
    ("head", Conflict, {"expected_head": Position(1, 1)}),
    ("branch", NotFound, {"select": 9}),
    ("entry id", AlreadyExists, {"records": (message("new"), message("first"))}),
]
"""What can be wrong with a change, in the order of the checks."""


async def staged(store: Store) -> dict[str, Any]:
    """Create a session in epoch 2 with a known key and a live lease; return the fields of a valid change."""
    await store.create(session())
    await store.commit(change(message("first"), key=Key("used", USED)))
    await store.commit(change(message("second"), next_epoch=True))
    lease = await store.acquire(HERE, holder="one", until=NOW - 5, now=NOW - 10)
    lease = await store.acquire(HERE, holder="two", until=NOW + 1_000, now=NOW)
    row = await store.get(HERE)
    right = {
        "at": HERE,
        "created": row.created,
        "epoch": 2,
        "fence": lease.fence,
        "expected_version": row.version,
    }
    return {**right, "expected_head": row.head, "records": (message("new"),), "parcels": (parcel("p"),)}


def asked(**fields: Any) -> Any:
    """Return a change with these fields."""
    return structs.replace(change(), **fields)


class AdmissionContract(Scene):
    """The checks of a change."""

    @scenario
    async def test_a_change_that_expects_what_is_there_is_taken(self, store: Store) -> None:
        receipt = await store.commit(asked(**await staged(store)))
        equal(receipt, Receipt(epoch=2, version=3, branch=1, first=3, last=3), "the receipt")

    @scenario
    async def test_each_check_refuses_and_changes_nothing(self, store: Store) -> None:
        right = await staged(store)
        for name, kind, wrong in FAULTS:
            async with unchanged(store):
                with refused(kind, claim=f"wrong {name}"):
                    await store.commit(asked(**{**right, **wrong}))

    @scenario
    async def test_of_two_checks_that_fail_the_earlier_one_answers(self, store: Store) -> None:
        right = await staged(store)
        for (name, kind, wrong), (later, _, also) in combinations(FAULTS, 2):
            if wrong.keys() & also.keys():
                continue
            async with unchanged(store):
                with refused(kind, claim=f"wrong {name} and {later}"):
                    await store.commit(asked(**{**right, **also, **wrong}))

    @scenario
    async def test_a_conflict_tells_where_the_session_is(self, store: Store) -> None:
        right, total = await staged(store), (await store.get(HERE)).total
        for wrong in ({"expected_version": 0}, {"expected_head": Position(2, 2)}):
            with refused(Conflict) as errors:
                await store.commit(asked(**{**right, **wrong}))
            conflicts = [error for error in errors if isinstance(error, Conflict)]
            found = [(error.version, tuple(error.head), error.total) for error in conflicts]
            equal(found, [(2, (1, 2), total)], f"version, head and total in the conflict over {wrong}")

    @scenario
    async def test_a_session_that_was_deleted_and_created_again_is_another_one(self, store: Store) -> None:
        await store.create(session(created=NOW), [message("a")])
        late = change(message("late"), created=NOW, epoch=1, expected_head=Position(1, 1))
        await store.remove(HERE)
        await store.create(session(created=NOW + 1), [message("b")])
        async with unchanged(store):
            with refused(EpochEnded):
                await store.commit(late)
        receipt = await store.commit(structs.replace(late, created=NOW + 1))
        equal(receipt.head, Position(1, 2), "a change that means the new one")

    @scenario
    async def test_a_repeated_key_gives_the_first_receipt_whatever_happened_since(self, store: Store) -> None:
        await store.create(session())
        first = await store.commit(change(message("a"), message("b"), key=Key("k", USED)))
        await store.commit(change(message("c"), fork=Fork(parent=1, seq=1, operation="fork")))
        await store.acquire(HERE, holder="another", until=NOW + 1_000, now=NOW)
        wanted = structs.replace(first, repeated=True)
        repeats: list[dict[str, Any]] = [
            {"records": (message("a"), message("b"))},
            {"records": (message("rebuilt"),)},
            {"fence": 0},
            {"fence": 7},
            {"expected_version": 0},
            {"expected_head": Position(1, 0)},
            {"select": 44},
            {"epoch": 1},
            {"parcels": (parcel("p"),)},
        ]
        for fields in repeats:
            async with unchanged(store):
                again = await store.commit(asked(key=Key("k", USED), **fields))
                equal(again, wanted, f"repeated with {fields}")
        equal(await store.parcels(), [], "a repetition sends nothing")

    @scenario
    async def test_a_key_answers_in_the_next_epoch_unless_the_old_one_is_named(self, store: Store) -> None:
        await store.create(session())
        first = await store.commit(change(message("a"), key=Key("k", USED)))
        await store.commit(change(next_epoch=True))
        again = await store.commit(change(message("a"), key=Key("k", USED)))
        equal(again, structs.replace(first, repeated=True), "repeated after a reset")
        with refused(EpochEnded):
            await store.commit(change(message("a"), key=Key("k", USED), epoch=1))

    @scenario
    async def test_keys_are_forgotten_when_their_time_is_over(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a"), key=Key("k", USED)))
        with refused(KeyReused):
            await store.commit(change(message("b"), key=Key("k", OTHER), now=NOW + KEY_LIFE - 1))
        with refused(KeyReused, claim="a clock that was set back"):
            await store.commit(change(message("b"), key=Key("k", OTHER), now=NOW - KEY_LIFE))
        there = Address(HERE.tenant, "s2")
        await store.create(session("s2"))
        for passed in range(
            HOUR, KEY_LIFE, HOUR
        ):  # a store without a clock may count only time in which it was used
            used = change(message(f"at {passed}"), at=there, key=Key(f"at {passed}", USED), now=NOW + passed)
            await store.commit(used)
        with refused(KeyReused):
            await store.commit(change(message("b"), key=Key("k", OTHER), now=NOW + KEY_LIFE - 1))
        later = await store.commit(change(message("b"), key=Key("k", OTHER), now=NOW + KEY_LIFE))
        equal((later.repeated, later.last), (False, 2), "the key used again")
        again = await store.commit(change(message("b"), key=Key("k", OTHER), now=NOW + KEY_LIFE + 1))
        equal(again, structs.replace(later, repeated=True), "the key repeated again")

    @scenario
    async def test_a_clock_that_may_have_jumped_forgets_no_key(self, store: Store) -> None:
        years, there = NOW + 150 * KEY_LIFE, Address(HERE.tenant, "s2")
        await store.create(session())
        await store.create(session("s2"))
        first = await store.commit(change(message("a"), key=Key("k", USED)))
        for number, at in enumerate((HERE, there)):  # each does its share of forgetting
            other = change(message(f"b{number}"), at=at, key=Key("other", USED), now=years)
            await store.commit(structs.replace(other, trusts_clock=False))
        retry = change(message("a"), key=Key("k", USED), now=years)
        again = await store.commit(structs.replace(retry, trusts_clock=False))
        equal(again, structs.replace(first, repeated=True), "the retry after a jump of the clock")
        async with unchanged(store):
            with refused(KeyReused):
                reused = change(message("c"), key=Key("k", OTHER), now=years)
                await store.commit(structs.replace(reused, trusts_clock=False))

    @scenario
    async def test_a_key_is_remembered_only_when_its_change_was_taken(self, store: Store) -> None:
        await store.create(session())
        with refused(Conflict):
            await store.commit(change(message("a"), key=Key("k", USED), expected_version=5))
        receipt = await store.commit(change(message("a"), key=Key("k", OTHER), expected_version=0))
        equal((receipt.repeated, receipt.last), (False, 1), "the change that was right")

    @scenario
    async def test_a_key_belongs_to_its_session(self, store: Store) -> None:
        there = Address(HERE.tenant, "s2")
        await store.create(session())
        await store.create(session("s2"))
        await store.commit(change(message("a"), key=Key("k", USED)))
        receipt = await store.commit(change(message("a"), at=there, key=Key("k", OTHER)))
        equal(receipt.repeated, False, "the same key in another session")

    @scenario
    async def test_a_decision_can_have_a_key_and_leaves_the_version_to_others(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        first = await store.commit(change(note("cut", kind="cut"), key=Key("k", USED), expected_version=0))
        again = await store.commit(change(note("cut", kind="cut"), key=Key("k", USED), expected_version=0))
        equal(again, structs.replace(first, repeated=True), "the decision repeated")
        receipt = await store.commit(change(message("b"), expected_version=0))
        equal(receipt.version, 1, "an append beside a decision")

    @scenario
    async def test_a_reset_begins_an_epoch_and_refuses_the_old_one(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        fork = Fork(parent=None, seq=0, operation="reset")
        reset = change(note("p", kind="prompt"), epoch=1, fork=fork, next_epoch=True, parcels=(parcel("o"),))
        receipt = await store.commit(reset)
        equal((receipt.epoch, receipt.head), (2, Position(2, 1)), "the receipt of a reset")
        for late in (change(message("late"), epoch=1), structs.replace(reset, records=(), parcels=())):
            async with unchanged(store):
                with refused(EpochEnded):
                    await store.commit(late)
        equal((await store.commit(change(message("b"), epoch=2))).epoch, 2, "the next epoch")

    @scenario
    async def test_a_reset_wins_over_a_lease_and_raises_the_fence(self, store: Store) -> None:
        await store.create(session(), [message("a")])
        lease = await store.acquire(HERE, holder="one", until=NOW + 100, now=NOW)
        async with unchanged(store):
            with refused(Busy, claim="an end beside a lease"):
                await store.commit(change(epoch=1, end="closed"))
        fork = Fork(parent=None, seq=0, operation="reset")
        receipt = await store.commit(change(epoch=1, fork=fork, next_epoch=True))
        row = await store.get(HERE)
        equal((receipt.epoch, row.epoch, row.lease_until, row.holder), (2, 2, 0, ""), "after the reset")
        holds(row.fence > lease.fence, "the fence is above that of the lease")
        late = change(message("late"), epoch=1, fence=lease.fence)
        for refusal, asked_late in [(EpochEnded, late), (Fenced, structs.replace(late, epoch=None))]:
            async with unchanged(store):
                with refused(refusal):
                    await store.commit(asked_late)
        async with unchanged(store):
            with refused(Fenced):
                await store.renew(HERE, lease, until=NOW + 200)
            await store.release(HERE, lease, now=NOW)
        await store.commit(change(message("b"), epoch=2))
        outdated = change(message("c"), epoch=2, fence=lease.fence, fork=fork, next_epoch=True)
        equal((await store.commit(outdated)).epoch, 3, "a reset by a holder that was taken over")

    @scenario
    async def test_what_has_ended_takes_nothing_until_its_next_epoch(self, store: Store) -> None:
        await store.create(session(idle=50))
        await store.commit(change(message("a"), key=Key("k", USED)))
        await store.commit(change(end="closed by \N{HOT BEVERAGE}", now=NOW + 1))
        row = await store.get(HERE)
        ended = (row.ended, row.reason, row.epoch, row.expires)
        equal(ended, (NOW + 1, "closed by \N{HOT BEVERAGE}", 1, None), "the ended session")
        late: list[dict[str, Any]] = [
            {"records": (message("b"),)},
            {"records": (message("b"),), "epoch": 1},
            {"key": Key("k", USED)},
            {"end": "again"},
            {"parcels": (parcel("p"),)},
        ]
        for fields in late:
            async with unchanged(store):
                with refused(EpochEnded, claim=f"late {fields}"):
                    await store.commit(asked(**fields))
        receipt = await store.commit(change(message("b"), next_epoch=True, now=NOW + 9))
        row = await store.get(HERE)
        equal((row.ended, row.reason, row.epoch, receipt.epoch), (None, "", 2, 2), "the next epoch")
        equal((row.active, row.expires), (NOW + 9, NOW + 59), "and it can fall idle again")
