"""The promises of a store about itself: what an acknowledgement means, and that it keeps what it has."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import time
from typing import get_args

from ..entry import Note, encode
from ..ids import UNKNOWN_TIME
from ..message import Message
from ..stores.port import Store
from ..stores.values import Address, Durability, Filter, Fork, Key, Record, Span
from ..words import words_of
from .contract_scenes import (
    HERE,
    NOW,
    Scene,
    change,
    dump,
    equal,
    holds,
    message,
    parcel,
    scenario,
    session,
)

__all__ = ["HealthContract"]


def said(id: str, text: str = "x") -> Record:
    """Give a message as sessions write it: a check of a store may read bodies."""
    real = Message.user(text, id=id, timestamp=UNKNOWN_TIME)
    return message(id, body=encode(real), words=words_of(real))


async def lived(store: Store) -> None:
    """Give a store a little of everything."""
    noted = Record(id="c", kind="note", body=encode(Note("x")))
    await store.create(session(user="u", tags=("x",), meta={"k": [1]}), [said("a", "w")])
    await store.commit(change(said("b"), noted, key=Key("k", b"1"), parcels=(parcel("p"),)))
    await store.commit(change(said("d"), fork=Fork(parent=1, seq=2, operation="fork")))
    await store.acquire(HERE, holder="w", until=NOW + 9, now=NOW)


class HealthContract(Scene):
    """What a store says of itself."""

    @scenario
    async def test_its_durability_is_one_of_three(self, store: Store) -> None:
        holds(store.durability in get_args(Durability), f"{store.durability!r} is a durability")

    @scenario
    async def test_its_own_time_is_that_of_a_clock_or_none(self, store: Store) -> None:
        told = await store.time()
        now = time.time_ns() // 1_000_000
        holds(told is None or abs(told - now) < 3_600_000, f"milliseconds since 1970: {told}, not {now}")

    @scenario
    async def test_it_tells_facts_in_words(self, store: Store) -> None:
        await lived(store)
        facts = await store.facts()
        holds(facts, "there is something to tell")
        holds(all(isinstance(text, str) for fact in facts.items() for text in fact), "facts are texts")

    @scenario
    async def test_a_check_of_a_sound_store_finds_nothing_and_changes_nothing(self, store: Store) -> None:
        await lived(store)
        before = await dump(store)
        for repair in (False, True):
            equal([finding async for finding in store.verify(repair=repair)], [], f"findings, {repair=}")
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
        for repair in (False, True):
            found = [finding async for finding in store.verify(repair=repair, recount=recount)]
            equal([one.id for one in found[:1]], ["b"], "what is found first")
            equal({bool(one.done) for one in found}, {repair}, "whether it is repaired")
            holds(repair or len(found) == 1, "nothing else is found")
            equal(await dump(store) == before, not repair, f"nothing changed, {repair=}")
        again = [finding async for finding in store.verify(repair=False, recount=recount)]
        equal(again, [], "findings after the repair")
        rows = [*await store.read(HERE, Span(1, 1, 9)), *await store.read(HERE, Span(2, 1, 9))]
        first, total = rows[0].tokens, (await store.get(HERE)).total
        equal([row.tokens for row in rows[1:2]], [50], "the count")
        equal(rows[1].total, first + 50, "the running total there")
        equal(rows[-1].total - rows[-1].tokens, rows[1].total, "the running total on the branch behind it")
        equal(total, rows[-1].total, "the total of the session")

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
                equal(len(await again.page(HERE.tenant, Filter(user="u", tag="x"))), 1, "the list")
                hits = await again.search(HERE.tenant, ["w"], user="u", before=None, limit=9)
                equal([hit.row.id for hit in hits], ["a"], "the index")
                repeated = await again.commit(change(key=Key("k", b"1"), now=NOW + 1))
                equal((repeated.repeated, repeated.last), (True, 3), "the key")
                receipt = await again.commit(change(message("e"), now=NOW + 9))
                equal((receipt.first, receipt.version), (4, 3), "the next entry")
            finally:
                await again.close()

        asyncio.run(reopened())
