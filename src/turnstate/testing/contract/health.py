"""What a store promises about itself: how durable it is, that it keeps what it has, and isolated tenants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, get_args

from ...codec import encode
from ...entry import ModelChange, Note
from ...errors import NotFound, StoreError
from ...ids import UNKNOWN_TIME
from ...message import Message
from ...stores.port import Store
from ...stores.values import MESSAGE, Address, Durability, Fork, Key, Lease, Record, SessionFilter, Span
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
    parcel,
    refused,
    scenario,
    session,
    unchanged,
)

# ruff: noqa: D102 - the name of a test is its sentence


def said(id: str, text: str = "x") -> Record:
    """Return a message as sessions write it, so that verification can decode it."""
    real = Message.user(text, id=id, timestamp=UNKNOWN_TIME)
    return message(id, body=encode(real))


async def lived(store: Store) -> None:
    """Fill a store with a little of everything."""
    noted = Record(id="c", kind="note", body=encode(Note("x")))
    await store.create(session(user="u", tags=("x",), meta={"k": [1]}), [said("a", "w")])
    await store.commit(change(said("b"), noted, key=Key("k", b"1"), parcels=(parcel("p"),)))
    await store.commit(change(said("d"), fork=Fork(parent=1, seq=2, operation="fork")))
    await store.acquire(HERE, holder="w", until=NOW + 9, now=NOW)


class HealthContract(Scene):
    """What a store says about itself, and that it keeps what it has."""

    repairs = True
    """Set this to False if `verify` refuses to repair, and raises a `StoreError` that says what to do."""

    @scenario
    async def test_its_durability_is_one_of_three(self, store: Store) -> None:
        holds(store.durability in get_args(Durability), f"{store.durability!r} is a durability")

    @scenario
    async def test_its_own_time_is_that_of_a_clock_or_none(self, store: Store) -> None:
        found = await store.time()
        now = time.time_ns() // 1_000_000
        holds(found is None or abs(found - now) < 3_600_000, f"milliseconds since 1970: {found}, not {now}")

    @scenario
    async def test_facts_are_texts(self, store: Store) -> None:
        await lived(store)
        facts = await store.facts()
        holds(facts, "there is something to tell")
        holds(all(isinstance(text, str) for fact in facts.items() for text in fact), "facts are texts")

    @scenario
    async def test_a_check_of_a_sound_store_finds_nothing_and_changes_nothing(self, store: Store) -> None:
        await lived(store)
        before = await dump(store)
        equal([finding async for finding in store.verify(repair=False)], [], "findings")
        if self.repairs:
            equal([finding async for finding in store.verify(repair=True)], [], "findings of a repair")
        else:
            with refused(StoreError):
                _ = [finding async for finding in store.verify(repair=True)]
        equal(await dump(store), before, "the session after the check")

    @scenario
    async def test_a_wrong_token_count_is_found_and_repaired_with_the_totals_that_follow(
        self, store: Store
    ) -> None:
        await lived(store)
        (stored,) = await store.find(HERE, ["b"])

        def recount(_counter: str, _kind: str, body: bytes, tokens: int) -> int | None:
            return 50 if body == stored.body and tokens != 50 else None

        before = await dump(store)
        for repair in (False, True) if self.repairs else (False,):
            found = [finding async for finding in store.verify(repair=repair, recount=recount)]
            equal([one.id for one in found[:1]], ["b"], "what is found first")
            equal({bool(one.done) for one in found}, {repair}, "whether it is repaired")
            holds(repair or len(found) == 1, "nothing else is found")
            equal(await dump(store) == before, not repair, f"nothing changed, {repair=}")
        if not self.repairs:
            return
        again = [finding async for finding in store.verify(repair=False, recount=recount)]
        equal(again, [], "findings after the repair")
        rows = [*await store.read(HERE, Span(1, 1, 9)), *await store.read(HERE, Span(2, 1, 9))]
        first, total = rows[0].tokens, (await store.get(HERE)).total
        equal([row.tokens for row in rows[1:2]], [50], "the count")
        equal(rows[1].total, first + 50, "the running total there")
        equal(rows[-1].total - rows[-1].tokens, rows[1].total, "the running total on the branch after it")
        equal(total, rows[-1].total, "the total of the session")

    @scenario
    async def test_an_entry_is_recounted_in_the_counter_of_the_model_before_it(self, store: Store) -> None:
        models = [
            Record(id=id, kind="model", body=encode(ModelChange(id, counter)))
            for id, counter in (("first", "cl100k_base"), ("second", "estimate"))
        ]
        await store.create(session(), [said("a", "a")])
        await store.commit(change(models[0], said("b", "b"), models[1], said("c", "c")))
        for id, seq in (("d", 1), ("e", 3), ("f", 5)):
            await store.commit(change(said(id, id), fork=Fork(parent=1, seq=seq, operation="rewind")))
        await store.commit(change(said("g", "g"), fork=Fork(parent=3, seq=1, operation="rewind")))
        asked = dict[bytes, str]()

        def recount(counter: str, kind: str, body: bytes, _tokens: int) -> int | None:
            asked.update({body: counter} if kind == MESSAGE else {})
            return None

        equal([one async for one in store.verify(repair=False, recount=recount)], [], "findings")
        names = [
            "o200k_base",
            "cl100k_base",
            "estimate",
            "o200k_base",
            "cl100k_base",
            "estimate",
            "o200k_base",
        ]
        wanted = {said(id, id).body: name for id, name in zip("abcdefg", names, strict=True)}
        equal(asked, wanted, "the counter of each message")

    @scenario
    async def test_scrubbing_what_was_removed_leaves_the_rest_as_it_is(self, store: Store) -> None:
        await lived(store)
        await store.create(session("gone"), [message("x", words=["gone"])])
        await store.remove(Address(HERE.tenant, "gone"))
        before = await dump(store)
        for _ in range(2):
            holds(isinstance(await store.scrub(), bool), "it tells whether no byte is left")
        equal(await dump(store), before, "the session that was not removed")
        receipt = await store.commit(change(message("e"), now=NOW + 9))
        equal(receipt.first, 4, "and it goes on")

    @scenario
    async def test_it_can_be_closed_twice(self, store: Store) -> None:
        await lived(store)
        await store.close()

    def test_what_was_written_is_there_when_the_store_is_opened_again(self) -> None:
        async def reopened() -> None:
            store = await self.connect()
            await lived(store)
            before = await dump(store)
            await store.close()
            again = await self.connect()
            try:
                equal(await dump(again), before, "the session in the store that was opened again")
                equal(len(await again.page(HERE.tenant, SessionFilter(user="u", tag="x"))), 1, "the list")
                hits = await again.search(HERE.tenant, ["w"], user="u", before=None, limit=9)
                equal([hit.row.id for hit in hits], ["a"], "the index")
                repeated = await again.commit(change(key=Key("k", b"1"), now=NOW + 1))
                equal((repeated.repeated, repeated.last), (True, 3), "the key")
                receipt = await again.commit(change(message("e"), now=NOW + 9))
                equal((receipt.first, receipt.version), (4, 3), "the next entry")
            finally:
                await again.close()

        asyncio.run(reopened())


# Tenants: no operation lets one tenant see or change the data of another.


# ruff: noqa: D102 - the name of a test is its sentence


THEIRS = Address("other", HERE.session)


async def fill(store: Store, at: Address, text: str) -> None:
    """Create a session with a little of everything, always under the same names."""
    row = session(at.session, tenant=at.tenant, title=text, user="u", tags=("x",), idle=5)
    await store.create(row, [said("a", f"word {text}")])
    sent = (parcel(f"{text} parcel", at=at, body=text.encode()),)
    await store.commit(change(message("b"), at=at, key=Key("k", text.encode()), parcels=sent))
    await store.commit(change(message("c"), at=at, fork=Fork(parent=1, seq=1, name=text, operation="fork")))


class TenantContract(Scene):
    """The isolation of tenants."""

    @scenario
    async def test_another_tenants_session_is_not_found_by_any_operation(self, store: Store) -> None:
        await fill(store, HERE, "mine")
        lease = Lease(fence=0, until=NOW)
        attempts: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: store.get(THEIRS),
            lambda: store.commit(change(message("x"), at=THEIRS)),
            lambda: store.commit(change(at=THEIRS, key=Key("k", b"mine"))),
            lambda: store.commit(change(at=THEIRS, next_epoch=True)),
            lambda: store.read(THEIRS, Span(1, 1, END)),
            lambda: store.find(THEIRS, ["a"]),
            lambda: store.newest(THEIRS, [Span(1, 1, END)], ["message"]),
            lambda: store.branches(THEIRS),
            lambda: store.update(THEIRS, title="x"),
            lambda: store.remove(THEIRS),
            lambda: store.acquire(THEIRS, holder="w", until=NOW + 9, now=NOW),
            lambda: store.renew(THEIRS, lease, until=NOW + 9),
        ]
        async with unchanged(store):
            for attempt in attempts:
                with refused(NotFound):
                    await attempt()

    @scenario
    async def test_another_tenants_sessions_are_in_no_list(self, store: Store) -> None:
        await fill(store, HERE, "mine")
        equal(await store.page(THEIRS.tenant, SessionFilter()), [], "a page")
        equal(await store.page(THEIRS.tenant, SessionFilter(user="u", tag="x")), [], "a page of user and tag")
        equal(await store.due(THEIRS.tenant, NOW + 10**9), [], "what is due")
        equal(await store.parcels(tenant=THEIRS.tenant), [], "the outbox")
        equal(await store.take(NOW, until=NOW + 9, limit=9, tenant=THEIRS.tenant), [], "what can be taken")
        found = await store.search(THEIRS.tenant, ["word"], user=None, before=None, limit=9)
        equal(found, [], "what is found")

    @scenario
    async def test_sessions_of_the_same_id_live_side_by_side(self, store: Store) -> None:
        await fill(store, HERE, "mine")
        await fill(store, THEIRS, "theirs")
        for at, text in ((HERE, "mine"), (THEIRS, "theirs")):
            row, branches, rows, parcels = await dump(store, at)
            equal((row.tenant, row.title, row.seq), (at.tenant, text, 2), "the session")
            equal([one.name for one in branches], ["", text], "its branches")
            equal(rows[0][0].body, said("a", f"word {text}").body, "its first entry")
            equal([one.body for one in parcels], [text.encode()], "its parcels")
            again = await store.commit(change(at=at, key=Key("k", text.encode())))
            equal(again.repeated, True, "its keys")
            hits = await store.search(at.tenant, ["word"], user="u", before=None, limit=9)
            equal([hit.row.body for hit in hits], [rows[0][0].body], "its words")

    @scenario
    async def test_what_happens_to_one_leaves_the_other_alone(self, store: Store) -> None:
        await fill(store, HERE, "mine")
        await fill(store, THEIRS, "theirs")
        async with unchanged(store):
            lease = await store.acquire(THEIRS, holder="w", until=NOW + 9, now=NOW)
            await store.commit(change(message("d"), at=THEIRS, fence=lease.fence, select=1))
            await store.update(THEIRS, title="t", tags=["y"], meta={"m": 1}, idle=0)
            await store.release(THEIRS, lease, now=NOW)
            await store.commit(change(at=THEIRS, next_epoch=True))
            await store.commit(change(at=THEIRS, end="closed"))
            await store.remove(THEIRS)
        receipt = await store.commit(change(message("d")))
        equal(receipt.last, 3, "the session that was left alone goes on")
