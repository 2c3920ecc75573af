"""What a store promises about search: all the words, newest first, page by page, and only one's own entries.

A message is found by the words that `search_terms` splits its text into, as soon as it is acknowledged.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from collections.abc import Sequence

from ...errors import Conflict, InputError
from ...search_terms import query
from ...stores.port import Store
from ...stores.values import Address, Fork, Hit
from .scenes import HERE, Scene, change, equal, holds, message, refused, scenario, session, unchanged
from .texts import HOSTILE


async def hits(
    store: Store, words: Sequence[str], *, tenant: str = HERE.tenant, user: str | None = None, limit: int = 99
) -> list[str]:
    """Return the ids of the hits."""
    found = await store.search(tenant, words, user=user, before=None, limit=limit)
    return [hit.row.id for hit in found]


class SearchContract(Scene):
    """Finding entries by their words."""

    @scenario
    async def test_all_the_words_must_be_there(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a", words=["disk", "is", "full"])))
        await store.commit(change(message("b", words=["full", "moon"]), message("c")))
        for words, ids in [
            (["full"], ["b", "a"]),
            (["full", "disk"], ["a"]),
            (["disk", "moon"], []),
            (["ful"], []),
            (["fulll"], []),
            (["full", "full"], ["b", "a"]),
            ([], []),
        ]:
            equal(await hits(store, words), ids, f"a search for {words}")

    @scenario
    async def test_a_hit_is_the_entry_and_its_session(self, store: Store) -> None:
        await store.create(session())
        await store.commit(change(message("a", words=["x1"], body=b'{"text":"x1"}', tokens=3)))
        (hit,) = await store.search(HERE.tenant, ["x1"], user=None, before=None, limit=9)
        (row,) = await store.find(HERE, ["a"])
        equal(hit, Hit(session=HERE.session, row=row, mark=hit.mark), "the hit")

    @scenario
    async def test_the_newest_comes_first_over_sessions_and_branches(self, store: Store) -> None:
        for id in ("s1", "s2"):
            await store.create(session(id), [message(f"{id} first", words=["w"])])
        for n in range(3):
            for id in ("s2", "s1"):
                fork = Fork(parent=1, seq=1, operation="fork") if n == 1 else None
                record = message(f"{id} {n}", words=["w", f"n{n}"])
                await store.commit(change(record, at=Address(HERE.tenant, id), fork=fork))
        wanted = ["s1 2", "s2 2", "s1 1", "s2 1", "s1 0", "s2 0", "s2 first", "s1 first"]
        equal(await hits(store, ["w"]), wanted, "newest first")

    @scenario
    async def test_a_search_in_one_session_finds_nothing_of_the_others(self, store: Store) -> None:
        for id in ("s1", "s2"):
            records = [message(f"{id} {n}", words=["w"]) for n in range(3)]
            await store.create(session(id, user=f"user of {id}"), records)
        for id, user, wanted in (
            ("s1", None, ["s1 2", "s1 1", "s1 0"]),
            ("s2", "user of s2", ["s2 2", "s2 1", "s2 0"]),
            ("s2", "user of s1", []),
            ("s3", None, []),
        ):
            found, mark = list[str](), None
            while page := await store.search(HERE.tenant, ["w"], user=user, session=id, before=mark, limit=2):
                found, mark = found + [hit.row.id for hit in page], page[-1].mark
            equal(found, wanted, f"a search in {id}, of {user}")

    @scenario
    async def test_a_search_continues_after_its_mark(self, store: Store) -> None:
        await store.create(session())
        for n in range(10):
            await store.commit(change(*(message(f"{n} {m}", words=["w"]) for m in range(3))))
        everything = await hits(store, ["w"])
        equal(len(everything), 30, "all hits")
        for limit in (1, 7, 30, 50):
            found, mark = list[str](), None
            while page := await store.search(HERE.tenant, ["w"], user=None, before=mark, limit=limit):
                holds(len(page) <= limit, "a page is no longer than asked for")
                found += [hit.row.id for hit in page]
                mark = page[-1].mark
                if len(found) == limit:
                    await store.commit(change(message(f"late {limit}", words=["w"])))
            equal([id for id in found if "late" not in id], everything, f"in pages of {limit}")
        beyond = await store.search(HERE.tenant, ["w"], user=None, before=2**40, limit=1)
        equal([hit.row.id for hit in beyond], ["late 30"], "from a mark far ahead")

    @scenario
    async def test_a_search_goes_on_while_sessions_come_and_go(self, store: Store) -> None:
        for id in ("kept", "removed"):
            await store.create(session(id), [message(f"{id} {n}", words=["w"]) for n in range(5)])
        first = await store.search(HERE.tenant, ["w"], user=None, before=None, limit=6)
        await store.remove(Address(HERE.tenant, "removed"))
        await store.create(session("new"), [message("new", words=["w"])])
        rest = await store.search(HERE.tenant, ["w"], user=None, before=first[-1].mark, limit=99)
        found = [hit.row.id for hit in [*first, *rest] if hit.session == "kept"]
        equal(found, [f"kept {n}" for n in (4, 3, 2, 1, 0)], "what was there all the time, once")

    @scenario
    async def test_entries_of_other_tenants_and_users_are_not_found(self, store: Store) -> None:
        for tenant, id, user in [
            ("acme", "s1", "u1"),
            ("acme", "s2", "u2"),
            ("acme", "s3", None),
            ("other", "s1", "u1"),
        ]:
            row = session(id, tenant=tenant, user=user)
            await store.create(row, [message(f"{tenant} {id}", words=["secret"])])
        equal(await hits(store, ["secret"]), ["acme s3", "acme s2", "acme s1"], "of a tenant")
        equal(await hits(store, ["secret"], user="u1"), ["acme s1"], "of a user")
        equal(await hits(store, ["secret"], user="nobody"), [], "of nobody")
        equal(await hits(store, ["secret"], user=""), [], "of a user without a name")
        equal(await hits(store, ["secret"], tenant="other"), ["other s1"], "of another tenant")
        equal(await hits(store, ["secret"], tenant="nobody"), [], "of an unknown tenant")

    @scenario
    async def test_a_page_is_filled_with_ones_own_however_many_others_match(self, store: Store) -> None:
        await store.create(session(user="me"), [message("mine", words=["w"])])
        await store.create(
            session("s2", user="you"), [message(f"yours {n}", words=["w"]) for n in range(300)]
        )
        await store.create(session(tenant="other"), [message(f"theirs {n}", words=["w"]) for n in range(300)])
        equal(await hits(store, ["w"], user="me", limit=1), ["mine"], "after messages of others")

    @scenario
    async def test_what_was_refused_is_not_found(self, store: Store) -> None:
        await store.create(session())
        with refused(Conflict):
            await store.commit(change(message("a", words=["ghost"]), expected_version=3))
        equal(await hits(store, ["ghost"]), [], "words of a refused change")

    @scenario
    async def test_words_of_many_scripts_are_found(self, store: Store) -> None:
        words = "disk größe café straße naïve привет x86 2024 snake_case हिन्दी".split()
        words += "日本 本語 데이 ไท ກິ 𞤢𞤣 𠮷野".split()
        await store.create(session())
        for n, word in enumerate(words):
            await store.commit(change(message(f"m{n}", words=["all", word])))
        for n, word in enumerate(words):
            equal(await hits(store, query(word)), [f"m{n}"], f"a search for {word}")
            equal(await hits(store, query(f"all {word}")), [f"m{n}"], f"a search for all and {word}")
        for word in ("cafe", "हिन", "snake_"):
            equal(await hits(store, [word]), [], f"{word} is a part of a word, or another one")

    @scenario
    async def test_odd_words_break_neither_the_index_nor_a_query(self, store: Store) -> None:
        odd = [
            *HOSTILE,
            "a\x00b",
            "AND",
            "OR",
            "NOT",
            "NEAR(a b)",
            "words:x",
            "^x",
            "x*",
            "-x",
            "(",
            ")",
            "{",
            "+",
        ]
        await store.create(session())
        for n, word in enumerate(odd):
            await store.commit(change(message(f"m{n}", words=[word, "plain"])))
        async with unchanged(store):
            for word in odd:
                for words in ([word], [word, "plain"], ["plain", word, word]):
                    try:
                        found = await hits(store, words)
                    except InputError:
                        continue
                    holds(len(found) <= len(odd), f"a search for {words} answers")
        equal(len(await hits(store, ["plain"], limit=999)), len(odd), "the plain word of all")

    @scenario
    async def test_an_entry_of_many_words_is_found_by_each(self, store: Store) -> None:
        words = [f"w{n}" for n in range(14_000)]
        await store.create(session(), [message("a", words=words), message("b", words=["w0"])])
        for word in ("w1", "w9999", "w13999"):
            equal(await hits(store, [word]), ["a"], f"a search for {word}")
        equal(await hits(store, words[:50]), ["a"], "a search for fifty words")
