"""The promise that one tenant never sees or touches what is another's, by any operation."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import NotFound
from ..stores.port import Store
from ..stores.values import Address, Filter, Fork, Key, Lease, Span
from .contract_scenes import (
    END,
    HERE,
    NOW,
    Scene,
    change,
    dump,
    equal,
    message,
    parcel,
    refused,
    scenario,
    session,
    unchanged,
)

__all__ = ["TenantContract"]

THEIRS = Address("other", HERE.session)


async def told(store: Store, at: Address, text: str) -> None:
    """Make a session that has a little of everything, all of it under the same names."""
    row = session(at.session, tenant=at.tenant, title=text, user="u", tags=("x",), idle=5)
    await store.create(row, [message("a", body=text.encode(), words=["word"])])
    sent = (parcel(f"{text} parcel", at=at, body=text.encode()),)
    await store.commit(change(message("b"), at=at, key=Key("k", text.encode()), parcels=sent))
    await store.commit(change(message("c"), at=at, fork=Fork(parent=1, seq=1, name=text, operation="fork")))


class TenantContract(Scene):
    """Who sees what."""

    @scenario
    async def test_another_tenants_session_is_not_found_by_any_operation(self, store: Store) -> None:
        await told(store, HERE, "mine")
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
        await told(store, HERE, "mine")
        equal(await store.page(THEIRS.tenant, Filter()), [], "a page")
        equal(await store.page(THEIRS.tenant, Filter(user="u", tag="x")), [], "a page of user and tag")
        equal(await store.due(THEIRS.tenant, NOW + 10**9), [], "what is due")
        equal(await store.parcels(tenant=THEIRS.tenant), [], "the outbox")
        equal(await store.take(NOW, until=NOW + 9, limit=9, tenant=THEIRS.tenant), [], "what can be taken")
        found = await store.search(THEIRS.tenant, ["word"], user=None, before=None, limit=9)
        equal(found, [], "what is found")

    @scenario
    async def test_sessions_of_the_same_id_live_side_by_side(self, store: Store) -> None:
        await told(store, HERE, "mine")
        await told(store, THEIRS, "theirs")
        for at, text in ((HERE, "mine"), (THEIRS, "theirs")):
            row, branches, rows, parcels = await dump(store, at)
            equal((row.tenant, row.title, row.seq), (at.tenant, text, 2), "the session")
            equal([one.name for one in branches], ["", text], "its branches")
            equal(rows[0][0].body, text.encode(), "its first entry")
            equal([one.body for one in parcels], [text.encode()], "its parcels")
            again = await store.commit(change(at=at, key=Key("k", text.encode())))
            equal(again.repeated, True, "its keys")
            hits = await store.search(at.tenant, ["word"], user="u", before=None, limit=9)
            equal([hit.row.body for hit in hits], [text.encode()], "its words")

    @scenario
    async def test_what_happens_to_one_leaves_the_other_alone(self, store: Store) -> None:
        await told(store, HERE, "mine")
        await told(store, THEIRS, "theirs")
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
