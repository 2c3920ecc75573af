"""What a store promises about texts: every name comes back unchanged, and breaks nothing.

Names are only ever compared as a whole: nothing is folded, trimmed, or interpreted as a pattern or as code.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ...errors import InputError, NotFound
from ...stores.port import Store
from ...stores.values import Address, Fork, Key, Parcel, Record, SessionFilter, Span
from .scenes import END, HERE, NOW, Scene, change, dump, equal, message, refused, scenario, session, unchanged

HOSTILE = (
    "",
    " ",
    "s1 ",
    "S1",
    "'",
    '"',
    "`",
    "\\",
    "%",
    "_",
    "*",
    "s_",
    "{ts:1}",
    "a:b/c?d#e",
    "'; DROP TABLE session; --",
    '" OR ""="',
    "$1 :name ?1 @x %s {0}",
    "line\nfeed\r\n\ttab",
    "\u202eright to left",
    "e\u0301",
    "é",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "日本語 中文 한국어",
    "😀👩‍👩‍👧\U0010ffff",
    "\uffff",
    "\x01\x7f\x85\u2028",
    "x" * 300,
    "null",
    "0",
    "-1",
    "1e3",
)
"""Texts that have broken stores: quotes, patterns, look-alikes, placeholders, scripts, lengths."""

NUL = "a\x00b"


class TextContract(Scene):
    """Texts of all kinds in names, ids and bodies."""

    @scenario
    async def test_sessions_with_hostile_ids_stay_apart(self, store: Store) -> None:
        for text in HOSTILE:
            await store.create(session(text, title=text))
            await store.commit(change(message(text), at=Address(HERE.tenant, text)))
        for text in HOSTILE:
            row = await store.get(Address(HERE.tenant, text))
            equal((row.id, row.title, row.seq), (text, text, 1), f"the session {text!r}")
        page = await store.page(HERE.tenant, SessionFilter(), limit=1_000)
        equal([row.id for row in page], sorted(HOSTILE, reverse=True), "all of them")

    @scenario
    async def test_tenants_with_hostile_names_stay_apart(self, store: Store) -> None:
        for text in HOSTILE:
            await store.create(session(tenant=text, title=text), [message("m", words=["word"])])
        for text in HOSTILE:
            equal((await store.get(Address(text, HERE.session))).title, text, f"the tenant {text!r}")
            titles = [row.title for row in await store.page(text, SessionFilter())]
            equal(titles, [text], f"the sessions of the tenant {text!r}")
            hits = await store.search(text, ["word"], user=None, before=None, limit=99)
            equal(len(hits), 1, f"hits of the tenant {text!r}")

    @scenario
    async def test_users_and_tags_with_hostile_names_are_told_apart(self, store: Store) -> None:
        for n, text in enumerate(HOSTILE):
            row = await store.create(
                session(f"s{n}", user=text, tags=(text,)), [message("m", words=["word"])]
            )
            equal((row.user, row.tags), (text, (text,)), "user and tag")
        for n, text in enumerate(HOSTILE):
            for which in (SessionFilter(user=text), SessionFilter(tag=text)):
                found = [row.id for row in await store.page(HERE.tenant, which)]
                equal(found, [f"s{n}"], f"{which}")
            hits = await store.search(HERE.tenant, ["word"], user=text, before=None, limit=99)
            equal([hit.session for hit in hits], [f"s{n}"], f"hits of the user {text!r}")
        await store.update(HERE._replace(session="s0"), title=HOSTILE[-1], tags=HOSTILE)
        equal((await store.get(HERE._replace(session="s0"))).tags, tuple(sorted(HOSTILE)), "all tags at once")

    @scenario
    async def test_entries_keys_and_branches_with_hostile_names_come_back(self, store: Store) -> None:
        await store.create(session(), [message("start")])
        for text in HOSTILE:
            fork = Fork(parent=1, seq=1, name=text, operation=text)
            record = Record(id=text, kind=f"kind {text}", body=text.encode())
            await store.commit(change(record, fork=fork, key=Key(text, text.encode())))
        for text in HOSTILE:
            (row,) = await store.find(HERE, [text])
            equal((row.id, row.kind, row.body), (text, f"kind {text}", text.encode()), "the entry")
            newest = await store.newest(HERE, [Span(row.branch, 1, END)], [f"kind {text}"])
            equal(newest, {f"kind {text}": row}, "the newest of its kind")
            again = await store.commit(change(key=Key(text, text.encode())))
            equal((again.repeated, again.branch), (True, row.branch), f"the key {text!r}")
        branches = (await store.branches(HERE))[1:]
        equal([(one.name, one.operation) for one in branches], [(text, text) for text in HOSTILE], "branches")
        equal(len(await store.find(HERE, HOSTILE)), len(HOSTILE), "all at once")

    @scenario
    async def test_parcels_holders_and_reasons_with_hostile_texts_come_back(self, store: Store) -> None:
        for text in HOSTILE:
            at = Address(HERE.tenant, text)
            await store.create(session(text, counter=text, meta={text: text}))
            await store.acquire(at, holder=text, until=NOW + 1, now=NOW)
            one = Parcel(id=text, tenant=at.tenant, session=text, kind=text, body=text.encode(), due=NOW)
            await store.commit(change(at=at, parcels=(one,), end=text, now=NOW + 1))
            await store.failed(text, error=text, due=None)
            row = await store.get(at)
            found = (row.holder, row.reason, row.counter, row.meta)
            equal(found, (text, text, text, {text: text}), f"the session {text!r}")
        parked = await store.parcels(parked=True, limit=1_000)
        shown = sorted((one.id, one.session, one.kind, one.error, one.body) for one in parked)
        equal(shown, sorted((text, text, text, text, text.encode()) for text in HOSTILE), "parcels")
        for text in HOSTILE:
            await store.revive(text, due=NOW)
            await store.delivered(text)
        equal(await store.parcels(), [], "after all were delivered")

    @scenario
    async def test_a_name_with_nul_is_kept_or_refused_and_never_cut_short(self, store: Store) -> None:
        there = Address(HERE.tenant, NUL)
        await store.create(session("a"))
        with suppress(InputError):
            await store.create(session(NUL, user=NUL, title=NUL, tags=(NUL,), meta={NUL: NUL}))
            row = await store.get(there)
            equal((row.id, row.user, row.title, row.tags), (NUL, NUL, NUL, (NUL,)), "the session")
            equal(row.meta, {NUL: NUL}, "its meta")
        equal((await store.get(Address(HERE.tenant, "a"))).title, "", "the session whose id is a beginning")
        await store.create(session())
        with suppress(InputError):
            await store.commit(change(message(NUL), key=Key(NUL, b"1")))
            equal([row.id for row in await store.find(HERE, [NUL])], [NUL], "the entry")
        with refused(NotFound, InputError):
            await store.get(Address(NUL, HERE.session))

    @scenario
    async def test_text_that_is_not_utf_8_harms_no_other_session(self, store: Store) -> None:
        await store.create(session(), [message("start")])
        lone = "\ud800"
        attempts: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: store.create(session(lone)),
            lambda: store.create(session("s2", title=lone)),
            lambda: store.get(Address(HERE.tenant, lone)),
            lambda: store.find(HERE, [lone]),
            lambda: store.search(HERE.tenant, [lone], user=None, before=None, limit=1),
        ]
        async with unchanged(store):
            for attempt in attempts:
                with suppress(InputError, NotFound):
                    await attempt()
        with suppress(InputError):
            await store.commit(change(message(lone)))
        receipt = await store.commit(change(message("b")))
        rows = (await dump(store))[2][0]
        equal([row.seq for row in rows], list(range(1, receipt.last + 1)), "the session goes on")
