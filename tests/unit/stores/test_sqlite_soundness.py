"""An index that lost its entries is noticed: entries are scanned for, and of sessions an error says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from tests.unit.stores.verification_fixtures import (
    LONG,
    NOW,
    furnish,
    noted,
    run,
    said,
    session,
    tamper,
    verified,
)
from turnstate import Budget, Message, SessionManager
from turnstate.errors import StoreDamaged
from turnstate.session import Session
from turnstate.stores.sqlite import SqliteStore, soundness
from turnstate.stores.sqlite.search import words_are_indexed
from turnstate.stores.values import Address, Change, Fork, SessionFilter, Span

T = TypeVar("T")

PAGE = 4096
END = 2**31


def empty(path: Path, tree: str) -> None:
    """Leave the root page of a tree without cells, as a leaf: SQLite finds nothing wrong with it."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,))
    db.close()
    empty_page(path, root)


def empty_page(path: Path, page: int) -> None:
    data, place = bytearray(path.read_bytes()), (page - 1) * PAGE
    kind = {2: 10, 5: 13}.get(data[place], data[place])
    data[place : place + 8] = bytes([kind, 0, 0, 0, 0]) + PAGE.to_bytes(2, "big") + b"\0"
    path.write_bytes(data)


def can_be_read(path: Path, entry: int) -> bool:
    db = apsw.Connection(str(path))
    try:
        return bool(list(db.execute("SELECT body FROM entry NOT INDEXED WHERE key = ?", (entry,))))
    except apsw.CorruptError:
        return False
    finally:
        db.close()


def in_session(path: Path, scene: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
    async def play() -> T:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            return await scene(await sessions.open("talk"))

    return asyncio.run(play())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run(tmp_path / "agent.db", furnish)
    return tmp_path / "agent.db"


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A session of twenty messages."""
    path = tmp_path / "agent.db"

    async def fill() -> None:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            made = await sessions.create(id="talk", system="You are kept.")
            for number in range(10):
                await made.append(Message.user(f"question {number}"), Message.assistant(f"answer {number}"))

    asyncio.run(fill())
    return path


@pytest.mark.parametrize("tree", ["sqlite_autoindex_entry_1", "sqlite_autoindex_entry_2", "entry_by_kind"])
def test_a_session_is_whole_without_any_one_index_of_its_entries(talk: Path, tree: str) -> None:
    async def look(session: Session) -> tuple[list[str], list[str], list[str], list[str]]:
        window, store = await session.window(Budget(50_000)), session._writer.store
        prompts = [one.id for one in await session.entries(kinds=["prompt"])]
        written = [row.id for row in await store.since(session._row.address, prompts[0], limit=100)]
        texts = [one.text for one in await session.messages()], [one.text for one in window.messages]
        return *texts, prompts, written

    whole = in_session(talk, look)
    empty(talk, tree)
    assert in_session(talk, look) == whole
    assert len(whole[0]) == len(whole[3]) == 20


def test_entries_that_only_a_scan_finds_are_reported(talk: Path) -> None:
    empty(talk, "sqlite_autoindex_entry_1")

    async def notices(session: Session) -> tuple[str, ...]:
        assert session.notices == ()
        await session.messages()
        return session.notices

    (told,) = in_session(talk, notices)
    assert "20 entries" in told or "21 entries" in told
    assert "turnstate verify" in told


def test_entries_that_are_lost_are_reported(talk: Path) -> None:
    tamper(talk, "DELETE FROM entry WHERE seq IN (4, 5)")

    async def look(session: Session) -> tuple[int, tuple[str, ...]]:
        with pytest.raises(StoreDamaged, match="should have 21 entries, and 19 can be read"):
            await anext(session.follow())
        return len(await session.messages()), session.notices

    count, (told,) = in_session(talk, look)
    assert count == 18
    assert told.startswith("2 damaged entries")


def test_an_older_prompt_does_not_replace_one_that_cannot_be_read(talk: Path) -> None:
    async def prompt(session: Session) -> None:
        await session.set_system("You are new.")
        await session.append(*(Message.user("long " * 500) for _ in range(20)))
        await session.compact()

    in_session(talk, prompt)
    db = apsw.Connection(str(talk))
    ((number,),) = db.execute("SELECT key FROM entry WHERE kind = 'prompt' ORDER BY seq DESC LIMIT 1")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = [
        page for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf'")
    ]
    db.close()
    sound = talk.read_bytes()
    for page in pages:
        talk.write_bytes(sound)
        empty_page(talk, page)
        if not can_be_read(talk, number):
            break

    async def look(session: Session) -> tuple[list[str], tuple[str, ...]]:
        window = await session.preview(Budget(50_000))
        return [one.text for one in window.messages], session.notices

    shown, told = in_session(talk, look)
    assert "You are kept." not in shown
    assert told


@pytest.mark.parametrize(("seq", "lost"), [(2, 0), (19, 0), (19, 3)])
def test_a_session_row_that_ends_before_its_log_is_refused(talk: Path, seq: int, lost: int) -> None:
    tamper(talk, f"UPDATE session SET seq = {seq}", f"DELETE FROM entry WHERE seq = {lost}")
    reads: list[Callable[[Session], Coroutine[Any, Any, Any]]] = [
        lambda session: session.messages(),
        lambda session: session.messages(last=1),
        lambda session: session.messages(limit=1),
        lambda session: session.entries(kinds=["prompt"]),
        lambda session: session.window(Budget(50_000)),
    ]
    for read in reads:
        with pytest.raises(StoreDamaged, match="there are entries after it"):
            in_session(talk, read)


def test_a_session_row_with_an_absurd_number_is_refused_in_no_time(talk: Path) -> None:
    tamper(talk, f"UPDATE session SET seq = {2**50}")
    with pytest.raises(StoreDamaged, match="can be read"):
        in_session(talk, lambda session: session.messages())


def test_a_session_whose_branches_are_gone_is_refused(path: Path) -> None:
    empty(path, "branch")

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="branches of"):
            await store.branches(LONG)
        with pytest.raises(StoreDamaged, match="branches of"):
            await store.commit(Change(at=LONG, now=NOW, fork=Fork(parent=None, seq=0, operation="fork")))

    run(path, read)


@pytest.mark.parametrize("change", ["fork_seq = 5", "fork_seq = 3"])
def test_a_branch_that_does_not_begin_where_its_row_says_is_refused(path: Path, change: str) -> None:
    tamper(path, f"UPDATE branch SET {change} WHERE session = 1 AND id = 2")

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="branch 2 of session long begins at entry 5"):
            await store.branches(LONG)

    run(path, read)


def test_a_branch_that_was_left_still_ends_where_it_did_without_its_index(path: Path) -> None:
    empty(path, "sqlite_autoindex_entry_1")

    async def select(store: SqliteStore) -> tuple[int, list[str]]:
        receipt = await store.commit(Change(at=LONG, now=NOW, select=1))
        return receipt.last, [row.id for row in await store.read(LONG, Span(1, 1, END))]

    assert run(path, select) == (6, ["a1", "n2", "a3", "a4", "a5", "a6"])


def test_the_lost_end_of_another_branch_is_reported(path: Path) -> None:
    tamper(path, "DELETE FROM entry WHERE session = 1 AND branch = 1 AND seq = 6")

    async def read(store: SqliteStore) -> list[tuple[int, bool]]:
        return [(row.seq, row.damaged) for row in await store.read(LONG, Span(1, 5, END))]

    assert run(path, read) == [(5, False), (6, True)]
    found, _ = verified(path)  # and the index for search knows a message that is not there
    assert found.fault == "branch 1 should end at entry 6, but its last entry is 5"
    verified(path, repair=True)
    assert verified(path) == []


def test_a_wrong_promise_is_found_and_repaired(path: Path) -> None:
    tamper(path, "UPDATE session SET marks = marks + 1 WHERE key = 1")
    (found,) = verified(path, repair=True)
    assert (found.session, found.done) == ("long", "the row is corrected")
    assert verified(path) == []


def test_a_repair_leaves_promises_that_hold(path: Path) -> None:
    tamper(path, "UPDATE entry SET body = x'00' WHERE id = 'a3'")
    verified(path, repair=True)
    assert verified(path) == []


INDEXES = ["sqlite_autoindex_session_1", "session_by_creation", "session_by_user", "session_by_expiry"]


@pytest.mark.parametrize("most", [10_000, 0], ids=["few sessions", "many sessions"])
@pytest.mark.parametrize("tree", INDEXES)
def test_no_list_and_no_search_is_incomplete_if_any_index_of_sessions_is(
    path: Path, tree: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundness, "MAX_COMPARED", most)
    empty(path, tree)

    async def read(store: SqliteStore) -> None:
        asked: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: store.page(LONG.tenant, SessionFilter()),
            lambda: store.page(LONG.tenant, SessionFilter(user="u")),
            lambda: store.page(LONG.tenant, SessionFilter(), order="active"),
            lambda: store.due(LONG.tenant, NOW + 10_000),
            lambda: store.search(LONG.tenant, ["disk"], user=None, before=None, limit=9),
            lambda: store.get(Address(LONG.tenant, "unknown")),
        ]
        for ask in asked:
            for _ in range(2):  # an error is not remembered as an answer
                with pytest.raises(StoreDamaged, match="turnstate verify"):
                    await ask()
        if tree != INDEXES[0]:
            assert (await store.get(LONG)).id == "long"

    run(path, read)


@pytest.mark.parametrize("tree", INDEXES[1:])
def test_a_session_that_is_found_can_be_used_whatever_the_lists(talk: Path, tree: str) -> None:
    async def go_on(session: Session) -> int:
        await session.append(Message.user("one more"))
        return len(await session.messages())

    empty(talk, tree)
    assert in_session(talk, go_on) == 21


def test_sessions_are_listed_by_their_tags_without_the_table_of_tags(path: Path) -> None:
    empty(path, "tag")

    async def read(store: SqliteStore) -> list[str]:
        assert await store.page(LONG.tenant, SessionFilter(tag="z")) == []
        return [row.id for row in await store.page(LONG.tenant, SessionFilter(tag="x"))]

    assert run(path, read) == ["long"]


def test_a_session_whose_row_is_gone_is_damaged_and_not_unknown(path: Path) -> None:
    empty(path, "session")

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="session long cannot be read"):
            await store.get(LONG)
        with pytest.raises(StoreDamaged):
            await store.page(LONG.tenant, SessionFilter())

    run(path, read)


def test_an_id_is_not_given_twice_without_the_index_of_ids(path: Path) -> None:
    empty(path, "sqlite_autoindex_session_1")

    async def create(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="an index does not lead to all of them"):
            await store.create(session(LONG))

    run(path, create)


@pytest.mark.parametrize("tree", ["sqlite_autoindex_entry_1", "sqlite_autoindex_entry_2"])
def test_a_session_is_not_deleted_in_part(path: Path, tree: str) -> None:
    empty(path, tree)

    async def remove(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="the others would stay"):
            await store.remove(LONG)
        assert (await store.get(LONG)).id == "long"

    run(path, remove)


@pytest.mark.parametrize("tree", ["outbox_by_due", "outbox_by_session", "outbox"])
def test_no_list_of_parcels_is_incomplete_if_an_index_of_the_outbox_is(path: Path, tree: str) -> None:
    empty(path, tree)

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="parcels are missing"):
            await store.parcels()
        with pytest.raises(StoreDamaged, match="parcels are missing"):
            await store.take(NOW, until=NOW + 9, limit=9)

    run(path, read)


def test_a_search_that_meets_a_lost_message_says_so(path: Path) -> None:
    empty(path, "session")

    async def search() -> list[str]:
        found = list[str]()
        async with await SessionManager.open(f"sqlite:///{path}", tenant="acme") as sessions:
            with pytest.raises(StoreDamaged, match="damaged"):
                found.extend([one.session async for one in sessions.search("disk")])
        return found

    assert asyncio.run(search()) == []


@pytest.fixture
def many_words(tmp_path: Path) -> Path:
    """A store whose index for search has many pages, and lists that go on over several."""
    path = tmp_path / "words.db"

    async def fill(store: SqliteStore) -> None:
        await store.create(session(LONG))
        for number in range(80):
            records = [said(f"{number}-{one}", f"common w{number}x{one} v{one}") for one in range(100)]
            await store.commit(Change(at=LONG, now=NOW, records=(*records, noted(f"n{number}"))))

    run(path, fill)
    return path


def test_an_index_for_search_without_its_first_words_is_refused(many_words: Path) -> None:
    async def search(store: SqliteStore) -> int:
        return len(await store.search("acme", ["common"], user=None, before=None, limit=10_000))

    assert run(many_words, search) == 8_000
    db = apsw.Connection(str(many_words))
    assert words_are_indexed(db)
    db.execute("INSERT INTO word (word) VALUES ('optimize')")
    db.close()
    assert run(many_words, search) == 8_000
    empty(many_words, "word_idx")
    with pytest.raises(StoreDamaged, match="search index"):
        run(many_words, search)
