"""What a store promises about the directory: sessions are created once, listed, updated, due and removed."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio

from msgspec import structs

from ...errors import AlreadyExists, Conflict, NotFound
from ...stores.port import Store
from ...stores.values import Address, Fork, Key, Order, Removed, SessionFilter, SessionRow, Span
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
    refused,
    scenario,
    session,
    unchanged,
)


async def listed(
    store: Store, which: SessionFilter, *, order: Order = "created", limit: int = 100
) -> list[str]:
    """Return the ids of all matching sessions, read page by page."""
    found, after = list[str](), None
    while page := await store.page(HERE.tenant, which, order=order, after=after, limit=limit):
        holds(len(page) <= limit, "a page is no longer than asked for")
        found += [row.id for row in page]
        after = page[-1].mark(order)
    return found


class DirectoryContract(Scene):
    """The directory of sessions."""

    @scenario
    async def test_a_session_is_made_with_its_first_entries(self, store: Store) -> None:
        given = session(
            user="u", title="A talk", tags=("b", "a", "b"), meta={"k": [1, None, {"x": 0.5}]}, idle=9
        )
        made = await store.create(given, [note("p", tokens=4), message("a", tokens=3)])
        equal(made, structs.replace(given, tags=("a", "b"), seq=2, total=7), "the session that was made")
        equal(await store.get(HERE), made, "the session that is there")
        rows = await store.read(HERE, Span(1, 1, END))
        equal([(row.seq, row.id, row.total) for row in rows], [(1, "p", 4), (2, "a", 7)], "its entries")

    @scenario
    async def test_what_is_handed_out_cannot_change_what_is_kept(self, store: Store) -> None:
        meta = {"list": [1]}
        made = await store.create(session(meta=meta))
        for handed in (meta, made.meta, (await store.get(HERE)).meta):
            handed["list"].append(2)
            handed["more"] = [3]
        equal((await store.get(HERE)).meta, {"list": [1]}, "meta after its copies were changed")
        updated = await store.update(HERE, meta=meta)
        meta["late"] = updated.meta["late"] = [4]
        holds("late" not in (await store.get(HERE)).meta, "meta that was given is copied")

    @scenario
    async def test_an_id_is_taken_once(self, store: Store) -> None:
        await store.create(session(title="first"), [message("a")])
        async with unchanged(store):
            with refused(AlreadyExists):
                await store.create(session(title="second"), [message("b")])

    @scenario
    async def test_a_session_whose_first_entries_share_an_id_is_not_made(self, store: Store) -> None:
        with refused(AlreadyExists):
            await store.create(session(), [message("a"), message("a")])
        with refused(NotFound):
            await store.get(HERE)
        await store.create(session(), [message("a")])

    @scenario
    async def test_an_unknown_session_is_not_found(self, store: Store) -> None:
        await store.create(session("S1"))
        for calls in (
            lambda: store.get(HERE),
            lambda: store.update(HERE, title="x"),
            lambda: store.remove(HERE),
        ):
            with refused(NotFound):
                await calls()

    @scenario
    async def test_pages_are_complete_and_in_order_however_long_they_are(self, store: Store) -> None:
        rows = [session(f"{n * 7919 % 10007:x}", created=NOW + n * 5 % 4) for n in range(40)]
        rows += [session(id, created=NOW + 1) for id in ("Z", "a", "_", "\uffee", "\U0001f600", "é", "")]
        for row in rows:
            await store.create(row)
        newest_first = sorted(rows, key=lambda row: (row.created, row.id), reverse=True)
        for limit in (1, 7, len(rows), 1_000):
            equal(
                await listed(store, SessionFilter(), limit=limit),
                [row.id for row in newest_first],
                f"by {limit}",
            )

    @scenario
    async def test_a_list_by_activity_begins_with_the_session_that_was_used_last(self, store: Store) -> None:
        def at(id: str) -> Address:
            return Address(HERE.tenant, id)

        for n, id in enumerate("abcdef"):
            await store.create(
                session(id, user="u" if id in "ace" else None, created=NOW + n, active=NOW + n)
            )
        await store.commit(change(message("m"), at=at("a"), now=NOW + 20))
        await store.commit(change(note("n"), at=at("b"), now=NOW + 30))
        await store.commit(change(at=at("c"), now=NOW + 40, next_epoch=True))
        await store.commit(change(message("early"), at=at("f"), now=NOW - 9))
        lease = await store.acquire(at("d"), holder="w", until=NOW + 99, now=NOW)
        await store.release(at("d"), lease, now=NOW + 10)
        await store.remove(at("e"))
        await store.create(session("b2", created=NOW - 5, active=NOW + 20))
        for limit in (1, 2, 100):
            equal(
                await listed(store, SessionFilter(), order="active", limit=limit),
                ["c", "b2", "a", "d", "f", "b"],
                f"by activity, {limit} at a time",
            )
            equal(
                await listed(store, SessionFilter(user="u"), order="active", limit=limit),
                ["c", "a"],
                "of a user",
            )
        which = SessionFilter(since=NOW + 1, until=NOW + 20)
        equal(await listed(store, which, order="active"), ["d", "f", "b"], "between two times")

    @scenario
    async def test_meta_is_changed_only_if_it_is_what_is_expected(self, store: Store) -> None:
        meta = {"b": [1, {"x": None}], "a": 0.5}
        await store.create(session(meta=meta))
        async with unchanged(store):
            for other in ({}, {"a": 0.5}, {**meta, "a": 1}):
                with refused(Conflict):
                    await store.update(HERE, meta={"lost": 1}, expected=other)
        reordered = {"a": 0.5, "b": [1, {"x": None}]}
        equal((await store.update(HERE, meta={"n": 1}, expected=reordered)).meta, {"n": 1}, "as expected")
        both = (store.update(HERE, meta={"n": n}, expected={"n": 1}) for n in (2, 3))
        ends = await asyncio.gather(*both, return_exceptions=True)
        equal(sum(isinstance(end, Conflict) for end in ends), 1, "of two that expect the same, one fails")

    @scenario
    async def test_sessions_that_come_and_go_do_not_disturb_the_pages(self, store: Store) -> None:
        for n in range(6):
            await store.create(session(f"s{n}", created=NOW + n))
        first = await store.page(HERE.tenant, SessionFilter(), limit=3)
        await store.create(session("newer", created=NOW + 9))
        await store.remove(first[-1].address)
        rest = await store.page(HERE.tenant, SessionFilter(), after=first[-1].mark(), limit=9)
        equal([row.id for row in first + rest], ["s5", "s4", "s3", "s2", "s1", "s0"], "two pages")

    @scenario
    async def test_filters_hold_together(self, store: Store) -> None:
        await store.create(session("a", user="u1", tags=("x", "y"), created=NOW + 1, active=NOW + 1))
        await store.create(session("b", user="u1", tags=("y",), created=NOW + 2, active=NOW + 2))
        await store.create(session("c", user="u2", tags=("x",), created=NOW + 3, active=NOW + 3))
        await store.create(session("d", user=None, created=NOW + 4, active=NOW + 4))
        await store.commit(change(at=Address(HERE.tenant, "b"), end="closed"))
        cases: list[tuple[SessionFilter, list[str]]] = [
            (SessionFilter(), ["d", "c", "b", "a"]),
            (SessionFilter(user="u1"), ["b", "a"]),
            (SessionFilter(user="U1"), []),
            (SessionFilter(user=""), []),
            (SessionFilter(tag="x"), ["c", "a"]),
            (SessionFilter(tag="%"), []),
            (SessionFilter(user="u1", tag="x"), ["a"]),
            (SessionFilter(since=NOW + 3), ["d", "c"]),
            (SessionFilter(until=NOW + 3), ["b", "a"]),
            (SessionFilter(since=NOW + 2, until=NOW + 4), ["c", "b"]),
            (SessionFilter(live=True), ["d", "c", "a"]),
            (SessionFilter(live=False), ["b"]),
            (SessionFilter(user="u1", tag="y", since=NOW, until=NOW + 9, live=True), ["a"]),
        ]
        for which, ids in cases:
            for limit in (1, 100):
                equal(await listed(store, which, limit=limit), ids, f"{which}")

    @scenario
    async def test_an_update_changes_what_is_given_and_leaves_the_rest(self, store: Store) -> None:
        row = await store.create(session(title="t", tags=("x",), meta={"a": 1}, idle=5), [message("m")])
        row = structs.replace(row, title="")
        equal(await store.update(HERE, title=""), row, "another title")
        row = structs.replace(row, tags=("a", "z"))
        equal(await store.update(HERE, tags=["z", "a", "z"]), row, "other tags")
        row = structs.replace(row, meta={})
        equal(await store.update(HERE, meta={}), row, "other meta")
        row = structs.replace(row, idle=0)
        equal(await store.update(HERE, idle=0), row, "no idle time")
        equal(await store.update(HERE), row, "nothing")
        equal(await store.get(HERE), row, "the session that is there")
        equal(await listed(store, SessionFilter(tag="x")), [], "a tag that was taken away")
        equal(await listed(store, SessionFilter(tag="z")), [HERE.session], "a tag that was given")

    @scenario
    async def test_due_are_idle_sessions_without_a_lease_the_longest_idle_first(self, store: Store) -> None:
        def at(id: str) -> Address:
            return Address(HERE.tenant, id)

        for id, idle in [
            ("b", 20),
            ("a", 20),
            ("c", 10),
            ("never", 0),
            ("held", 5),
            ("ended", 5),
            ("used", 5),
        ]:
            await store.create(session(id, idle=idle))
        await store.create(session("elsewhere", tenant="other", idle=1))
        lease = await store.acquire(at("held"), holder="w", until=NOW + 100, now=NOW)
        await store.commit(change(at=at("ended"), end="closed"))
        await store.commit(change(message("m"), at=at("used"), now=NOW + 80))
        await store.commit(change(note("n"), at=at("a"), now=NOW + 15))

        async def due(now: int, limit: int = 100) -> list[str]:
            return [row.id for row in await store.due(HERE.tenant, now, limit=limit)]

        equal(await due(NOW + 9), [], "before anybody is idle")
        equal(await due(NOW + 10), ["c"], "idle for exactly as long as it may be")
        equal(await due(NOW + 80), ["c", "a", "b"], "the longest idle first, then by id")
        equal(await due(NOW + 80, 2), ["c", "a"], "no more than asked for")
        await store.release(at("held"), lease, now=NOW)
        await store.update(at("c"), idle=0)
        await store.update(at("never"), idle=1)
        await store.commit(change(at=at("ended"), next_epoch=True, now=NOW + 30))
        equal(await due(NOW + 80), ["never", "held", "a", "b", "ended"], "after they were changed")
        equal(await due(NOW + 85), ["never", "held", "a", "b", "ended", "used"], "and a while later")

    @scenario
    async def test_a_lease_that_ends_is_activity_until_then(self, store: Store) -> None:
        for id in ("kept", "given back", "late"):
            await store.create(session(id, idle=5))
            at = Address(HERE.tenant, id)
            lease = await store.acquire(at, holder="w", until=NOW + 50, now=NOW)
            if id != "kept":
                await store.release(at, lease, now=NOW + (20 if id == "given back" else 53))

        async def due(now: int) -> list[str]:
            return sorted(row.id for row in await store.due(HERE.tenant, now))

        equal(await due(NOW + 24), [], "while two are held, and one was a moment ago")
        equal(await due(NOW + 25), ["given back"], "idle since it was given back")
        equal(await due(NOW + 54), ["given back"], "when the leases have run out a moment ago")
        equal(await due(NOW + 55), ["given back", "kept", "late"], "idle since they ran out")
        active = [(await store.get(Address(HERE.tenant, id))).active for id in ("given back", "late")]
        equal(active, [NOW + 20, NOW + 50], "when they were used last")

    @scenario
    async def test_what_is_removed_is_gone_with_everything_that_hung_on_it(self, store: Store) -> None:
        await store.create(session(tags=("x",), idle=1, user="u"), [message("a", words=["blue"])])
        await store.commit(change(message("b", words=["blue"]), key=Key("k1", b"1"), parcels=(parcel("p"),)))
        await store.commit(change(note("c"), key=Key("k2", b"2"), fork=Fork(parent=1, seq=1, operation="f")))
        other = await bystander(store)
        before = await dump(store, other.address)
        removed = await store.remove(HERE)
        counts = Removed(entries=3, branches=2, keys=2, parcels=1)
        equal(removed, counts, "what was removed")
        with refused(NotFound):
            await store.get(HERE)
        with refused(NotFound):
            await store.read(HERE, Span(1, 1, END))
        with refused(NotFound):
            await store.remove(HERE)
        equal(await listed(store, SessionFilter(tag="x")), [other.id], "the tag")
        equal([row.id for row in await store.due(HERE.tenant, END * 10**6)], [other.id], "what is due")
        equal([one.id for one in await store.parcels()], ["q"], "the outbox")
        hits = await store.search(HERE.tenant, ["blue"], user=None, before=None, limit=9)
        equal([hit.session for hit in hits], [other.id], "the index")
        equal(await dump(store, other.address), before, "the other session")

    @scenario
    async def test_an_id_that_was_removed_can_be_used_again(self, store: Store) -> None:
        await store.create(session(tags=("x",)), [message("a", words=["old"])])
        await store.commit(change(message("b", words=["old"]), key=Key("k", b"1"), parcels=(parcel("p"),)))
        await store.acquire(HERE, holder="w", until=NOW + 99, now=NOW)
        await store.remove(HERE)
        made = await store.create(session())
        equal(made, session(), "the session that was made again")
        receipt = await store.commit(change(message("b", words=["new"]), key=Key("k", b"2")))
        equal((receipt.first, receipt.repeated), (1, False), "its first entry")
        equal(await store.parcels(), [], "its parcels")
        equal(await listed(store, SessionFilter(tag="x")), [], "its tags")
        equal(await store.search(HERE.tenant, ["old"], user=None, before=None, limit=9), [], "its words")


async def bystander(store: Store) -> SessionRow:
    """Create a session with a little of everything."""
    row = await store.create(session("s2", tags=("x",), idle=1, user="u"), [message("a", words=["blue"])])
    sent = (parcel("q", at=row.address),)
    await store.commit(change(message("b"), at=row.address, key=Key("k1", b"1"), parcels=sent))
    return await store.get(row.address)
