"""The search index follows the log, and a search finds all that was acknowledged, indexed or not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.harness.thoroughness import runs
from tests.unit.stores.verification_fixtures import (
    LONG,
    NOW,
    index,
    noted,
    run,
    said,
    session,
    tamper,
    verified,
)
from turnstate import Message, SessionManager
from turnstate.errors import AlreadyExists, NotFound, StoreDamaged
from turnstate.search_terms import entry_text, entry_words, words
from turnstate.stores.sqlite import SqliteStore, search, writer
from turnstate.stores.values import Address, Change
from turnstate.testing.conversations import valid

Scene = Callable[[SqliteStore], Coroutine[None, None, None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


async def found(store: SqliteStore, word: str = "w", *, limit: int = 10_000) -> list[str]:
    hits = await store.search(LONG.tenant, [word], user=None, before=None, limit=limit)
    return [hit.row.id for hit in hits]


def written(path: Path, count: int, *, first: int = 0) -> None:
    """Write messages that are not indexed."""

    async def fill(store: SqliteStore) -> None:
        if not first:
            await store.create(session(LONG))
        records = [said(f"m{n}", f"w n{n}") for n in range(first, first + count)]
        await store.commit(Change(at=LONG, now=NOW, records=(*records, noted(f"n{first}"))))

    run(path, fill)


def indexed(path: Path) -> list[int]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [key for (key,) in db.execute("SELECT rowid FROM word ORDER BY rowid")]
    finally:
        db.close()


def newest_first(count: int) -> list[str]:
    return [f"m{n}" for n in reversed(range(count))]


@pytest.mark.req("C9")
def test_an_append_writes_no_words_and_a_search_finds_it(path: Path) -> None:
    written(path, 300)
    assert indexed(path) == []
    assert run(path, found) == newest_first(300)
    assert len(indexed(path)) == 300
    written(path, 5, first=300)
    assert run(path, found) == newest_first(305)


@pytest.mark.req("C9")
def test_too_much_to_wait_for_is_read_instead_with_the_same_hits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 30)
    run(path, found)
    written(path, 90, first=30)
    monkeypatch.setattr(search, "MOST_BEHIND", 50)

    async def pages(store: SqliteStore) -> list[str]:
        ids, mark = list[str](), None
        while page := await store.search(LONG.tenant, ["w"], user="u", session="long", before=mark, limit=7):
            ids, mark = ids + [hit.row.id for hit in page], page[-1].mark
        return ids

    assert run(path, pages) == run(path, found) == newest_first(120)
    assert len(indexed(path)) == 30
    monkeypatch.undo()
    monkeypatch.setattr(writer, "IDLE", 3_600)
    assert run(path, pages) == newest_first(120)
    assert len(indexed(path)) == 120


@pytest.mark.req("C9")
def test_a_file_that_cannot_be_written_is_searched_with_the_same_hits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 40)
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda name, mode: mode != os.W_OK and access(name, mode)
    )  # root may write everything
    assert run(path, found) == newest_first(40)
    assert indexed(path) == []


@pytest.mark.req("C9")
def test_an_idle_writer_catches_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path, 3 * search.STEP)
    monkeypatch.setattr(writer, "IDLE", 0.001)

    async def wait(_: SqliteStore) -> None:
        deadline = time.monotonic() + 60
        while len(indexed(path)) < 3 * search.STEP and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    run(path, wait)
    assert len(indexed(path)) == 3 * search.STEP


@pytest.mark.req("C9")
def test_a_key_that_was_freed_hides_nothing(path: Path) -> None:
    async def scene(store: SqliteStore) -> None:
        await store.create(session(LONG), [said("old", "w")])
        other = Address(LONG.tenant, "other")
        await store.create(session(other), [said("newest", "w")])
        assert await found(store) == ["newest", "old"]
        await store.remove(other)
        await store.commit(Change(at=LONG, now=NOW, records=(said("new", "w"),)))
        assert await found(store) == ["new", "old"]

    run(path, scene)
    assert verified(path) == []


@pytest.mark.req("C9")
def test_whatever_two_processes_do_a_search_finds_each_message_that_is_there(path: Path) -> None:
    """Appends, refused batches, rollbacks, deletions of the newest session, steps of the index, at random."""

    def roll_back(db: apsw.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "INSERT INTO entry (session, branch, seq, id, kind, body, tokens, total, checksum) "
            "SELECT key, branch, seq + 1, 'gone', 0, x'7b7d', 0, total, 0 FROM session"
        )
        db.execute("ROLLBACK")

    async def play(store: SqliteStore, rival: SqliteStore, rng: Random) -> None:
        there, number = dict[Address, list[str]](), 0
        for step in range(30):
            one, at = rng.choice([store, rival]), Address(LONG.tenant, f"s{step}")
            some = [f"m{number + n}" for n in range(rng.randrange(1, 4))]
            number += len(some)
            match rng.randrange(6):
                case 0:
                    await one.create(session(at), [said(id, "w") for id in some])
                    there[at] = some
                case 1 if there:
                    await one.remove(last := max(there, key=lambda known: int(known.session[1:])))
                    del there[last]
                case 2 if there:
                    at, again = rng.choice(list(there)), said(some[0], "w")
                    changes = [Change(at=at, now=NOW, records=(said(id, "w"),)) for id in some]
                    changes.append(Change(at=at, now=NOW, records=(again, again)))
                    outcomes = await asyncio.gather(*map(one.commit, changes), return_exceptions=True)
                    assert isinstance(outcomes[-1], AlreadyExists)
                    there[at] += some
                case 3:
                    await one._writer.run_alone(roll_back)
                case _:
                    await one._writer.run_alone(search.index_some)
            if rng.randrange(3) == 0:
                expected = sorted(id for ids in there.values() for id in ids)
                assert sorted(await found(rng.choice([store, rival]))) == expected

    for seed in range(runs(5, long=50)):
        file = path.with_name(f"{seed}.db")

        async def scene(store: SqliteStore, seed: int = seed, file: Path = file) -> None:
            rival = SqliteStore(str(file))
            try:
                await play(store, rival, Random(seed))
            finally:
                await rival.close()

        run(file, scene)
        assert verified(file) == []


@pytest.mark.req("C9")
def test_erasing_while_others_index_leaves_no_word(path: Path) -> None:
    """Two stores on one file, as two processes are: one erases, the other indexes."""

    async def scene(store: SqliteStore) -> None:
        other, rng = SqliteStore(str(path)), Random(3)
        try:
            for number in range(runs(50, long=200)):
                at = Address(LONG.tenant, f"s{number}")
                await store.create(session(at), [said(f"{number} {n}", f"secret w{n}") for n in range(20)])

                async def erase(at: Address = at) -> None:
                    await asyncio.sleep(rng.random() * 0.004)
                    await store.remove(at)

                await asyncio.gather(erase(), other._writer.run_alone(search.index_some), index(store))
                assert await found(store, "secret") == []
            with pytest.raises(NotFound):
                await store.get(at)
        finally:
            await other.close()

    run(path, scene)
    assert indexed(path) == []
    assert verified(path) == []


@pytest.mark.req("C9", "G6")
def test_two_that_index_at_once_index_nothing_twice(path: Path) -> None:
    written(path, 600)

    async def scene(store: SqliteStore) -> None:
        stores = [store, *(SqliteStore(str(path)) for _ in range(2))]
        try:
            lists = await asyncio.gather(*(found(one) for one in stores for _ in range(3)))
        finally:
            for one in stores[1:]:
                await one.close()
        assert all(ids == newest_first(600) for ids in lists)

    run(path, scene)
    assert len(indexed(path)) == 600
    assert verified(path) == []


@pytest.mark.req("C9", "G6")
def test_a_damaged_message_that_was_not_indexed_is_a_damaged_hit_until_it_is_repaired(path: Path) -> None:
    written(path, 9)
    tamper(path, "UPDATE entry SET body = x'00' WHERE id = 'm4'")

    async def hits(store: SqliteStore) -> list[tuple[str, bool]]:
        some = await store.search(LONG.tenant, ["n2"], user=None, before=None, limit=99)
        return [(hit.row.id, hit.row.damaged) for hit in some]

    for _ in range(2):
        assert run(path, hits) == [("m4", True), ("m2", False)]
    assert verified(path, repair=True)
    assert run(path, hits) == [("m2", False)]
    assert verified(path) == []


@pytest.mark.req("C9", "G6")
def test_messages_that_vanished_before_they_were_indexed_are_missed(path: Path) -> None:
    written(path, 9)
    tamper(path, "DELETE FROM entry WHERE id = 'm4'")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="are missing"):
            run(path, found)
    assert verified(path, repair=True)
    assert len(run(path, found)) == 8


def test_an_index_that_claims_more_than_there_is_is_refused_and_rebuilt(path: Path) -> None:
    written(path, 9)
    tamper(path, "INSERT INTO word (rowid, words) VALUES (99, 'x')")
    with pytest.raises(StoreDamaged, match="verify --repair"):
        run(path, found)
    assert verified(path, repair=True)
    assert run(path, found) == newest_first(9)
    assert verified(path) == []


@pytest.mark.req("C9")
def test_the_text_that_is_indexed_has_the_words_of_the_message() -> None:
    def tokens(text: str) -> set[str]:
        """Cut as the tokenizer of SQLite does."""
        return set("".join(c if c.isalnum() or c == "_" or c > "\x7f" else " " for c in text.lower()).split())

    odd = [
        "",
        "a_b",
        "camelCase X86 HTTPServer 2ndPlace A1b 0Ab",
        "x" * 65,
        f"see ({'y' * 70}),then __init__ and_or:_x_ snake_Case.HTTPServer-2ndPlace",
        "_",
        "lead_ing aB",
        "É_x",
        "a\0b",
        "日本語 disk",
        "K K",
    ]
    rng = Random(7)
    odd += ["".join(rng.choices("aabzAABZ019__ ./-", k=rng.randrange(90))) for _ in range(2_000)]
    bodies = [said("x", text).body for text in odd]
    bodies += [said("x", message.text).body for seed in range(20) for message in valid(seed)]
    for body in bodies:
        assert tokens(entry_text("message", body)) == set(entry_words("message", body))
    assert entry_text("message", b"{}") == entry_text("note", bodies[0]) == ""
    assert words("a_b") == entry_words("message", said("x", "a_b").body)


@pytest.mark.req("C9")
def test_a_search_ends_behind_more_entries_that_are_no_messages_than_a_step_has(path: Path) -> None:
    notes = [noted(f"n{number}") for number in range(2 * search.STEP)]

    async def scene(store: SqliteStore) -> list[str]:
        await store.create(session(LONG))
        await store.commit(Change(at=LONG, now=NOW, records=(*notes, said("m0", "w n0"))))
        return await asyncio.wait_for(found(store), 30)

    assert run(path, scene) == ["m0"]


@pytest.mark.req("C9")
def test_a_session_or_a_user_is_searched_with_the_hits_that_all_sessions_have_of_it(path: Path) -> None:
    """An index that begins at the entries of a session must not miss those of its branches."""
    rng, said_before = Random(7), dict[str, str]()

    async def fill() -> None:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            opened = [await sessions.create(id=f"s{number}", user=f"u{number % 2}") for number in range(4)]
            for number in range(120):
                one, message = rng.choice(opened), Message.user(f"w n{number}")
                await one.append(message)
                match rng.randrange(6):
                    case 0:
                        said_before.setdefault(one.id, message.id)
                        await one.rewind(said_before[one.id])
                    case 1:
                        await one.fork()
                    case 2:
                        await one.fork()
                        await one.append(Message.user(f"w again n{number}"))
                        await one.undo()

    asyncio.run(fill())

    async def pages(
        store: SqliteStore, id: str | None = None, user: str | None = None
    ) -> list[tuple[str, str]]:
        hits, mark = list[tuple[str, str]](), None
        while page := await store.search("default", ["w"], user=user, session=id, before=mark, limit=7):
            hits, mark = hits + [(hit.session, hit.row.id) for hit in page], page[-1].mark
        return hits

    every = run(path, pages)
    assert len(every) >= 120
    for id in {name for name, _ in every}:
        assert run(path, partial(pages, id=id)) == [hit for hit in every if hit[0] == id]
    for user, ids in (("u0", ("s0", "s2")), ("u1", ("s1", "s3"))):
        assert run(path, partial(pages, user=user)) == [hit for hit in every if hit[0] in ids]
        assert run(path, partial(pages, user=user, id="s0")) == [
            hit for hit in every if (hit[0], user) == ("s0", "u0")
        ]


@pytest.mark.req("C9")
def test_a_lost_entry_is_a_damaged_hit_of_a_search_in_its_session(path: Path) -> None:
    written(path, 9)

    async def around(store: SqliteStore) -> None:
        await store.create(session(Address(LONG.tenant, "later")), [said("later", "w")])

    run(path, around)
    run(path, found)

    async def damaged(store: SqliteStore) -> int:
        of_session = await store.search(LONG.tenant, ["w"], user=None, session="long", before=None, limit=99)
        of_user = await store.search(LONG.tenant, ["w"], user="u", session=None, before=None, limit=99)
        counts = {sum(bool(hit.row.damaged) for hit in hits) for hits in (of_session, of_user)}
        return counts.pop() if len(counts) == 1 else -1

    assert run(path, damaged) == 0
    for lost, place in enumerate(("min(key)", "max(key)", "min(key) + 3"), start=1):
        which = f"SELECT {place} FROM entry WHERE session = 1 AND kind = 0"
        tamper(path, f"DELETE FROM entry WHERE key = ({which})")
        assert run(path, damaged) == lost


def test_the_pages_that_a_merge_of_the_index_frees_are_given_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STEP", 8)
    monkeypatch.setattr(search, "LEAST_FREE", 1)

    def merged(db: apsw.Connection) -> tuple[int, int]:
        db.execute("INSERT INTO word (word) VALUES ('optimize')")
        return pages(db)

    async def merge(store: SqliteStore) -> list[tuple[int, int]]:
        sizes = [await store._writer.run_alone(merged)]
        await store._writer.run_alone(search.index_some)
        return [*sizes, await store._writer.run_alone(pages)]

    written(path, 2_000)
    run(path, found)
    (before, free), (after, left) = run(path, merge)
    assert free > search.LEAST_FREE + before // search.PAGES_PER_FREE
    assert (after, left) == (before - free, 0)
    assert run(path, found) == newest_first(2_000)


def pages(db: apsw.Connection) -> tuple[int, int]:
    return db.pragma("page_count"), db.pragma("freelist_count")
