"""Erasing: no byte of a session or a user is left in any file, and others keep all of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import apsw
import pytest

from tests.unit.session.session_fixtures import (
    Harness,
    answer,
    answers,
    asks,
    call,
    everything,
    rows,
    run,
    texts,
)
from turnstate import Message
from turnstate.context.policy import Budget
from turnstate.errors import EpochEnded, InputError, NotFound
from turnstate.memory.builtin import BuiltinEngine
from turnstate.memory.builtin.sqlite import SqliteDatabase
from turnstate.session import Session, SessionManager
from turnstate.stores.sqlite import changes

pytestmark = pytest.mark.req("G9")

NARROW = Budget(900)
on_disk = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)


class Secrets:
    """Rare words, of which no two begin alike, and where they are looked for."""

    def __init__(self, seed: int) -> None:
        self._rng, self.words = Random(seed), list[str]()

    def word(self) -> str:
        letters = "bcdfghjklmnpqrstvwxz"
        self.words.append("".join(self._rng.choice(letters) for _ in range(16)))
        return self.words[-1]

    def found(self, harness: Harness) -> list[str]:
        """Return the words of which a piece is left in a file: an index leaves out what neighbors share."""
        files = [path.read_bytes().lower() for path in harness.folder.glob("agent.db*")]
        assert files
        return [word for word in self.words if any(word[4:].encode() in data for data in files)]


class Life:
    """A session that leaves traces wherever it can."""

    def __init__(self, session: Session, secrets: Secrets) -> None:
        self.session, self.word = session, secrets.word

    async def begin(self) -> None:
        session, word = self.session, self.word
        await session.rename(word())
        await session.tag(word(), word())
        await session.annotate({word(): [word()]})
        await session.set_system(f"You are {word()}.")

    async def go_on(self, turns: int) -> None:
        session, word = self.session, self.word
        for _ in range(turns):
            one = call(word(), **{word(): word()})
            await session.append(Message.user(f"{word()} " + "padding " * 40), key=word())
            await session.append(asks(one), answers(answer(one, {word(): word()})))
            await session.append(Message.assistant(f"{word()} 日本{word()}"))

    async def end(self) -> None:
        session, word = self.session, self.word
        await session.window(NARROW)
        await session.append(Message.user(word(), id=word()))
        await session.fork(name=word())
        await session.append(Message.user(word()))
        self.session = await session.reset(system=word())
        await self.session.acquire(holder=word())
        await self.session.append(Message.user(word()))
        await self.session.end(word())


async def lives(sessions: SessionManager, count: int) -> list[tuple[Session, Secrets]]:
    """Let several sessions live at the same time, their entries interleaved."""
    secrets = [Secrets(number) for number in range(count)]
    made = [await sessions.create(id=one.word(), user=one.word()) for one in secrets]
    all = [Life(session, one) for session, one in zip(made, secrets, strict=True)]
    for life in all:
        await life.begin()
    for _ in range(12):
        for life in all:
            await life.go_on(1)
    for life in all:
        await life.end()
    return [(life.session, one) for life, one in zip(all, secrets, strict=True)]


@on_disk
@run
async def test_of_an_erased_session_no_byte_is_left_and_the_others_are_as_they_were(harness: Harness) -> None:
    sessions = await harness.manager()
    (gone, erased), *others = await lives(sessions, 3)
    assert len(erased.found(harness)) == len(erased.words)
    before = [await everything(session) for session, _ in others]
    receipt = await sessions.erase(session=gone.id)
    assert receipt.scrubbed
    assert erased.found(harness) == []
    after = [await everything(session) for session, _ in others]
    assert [state[:3] for state in after] == [state[:3] for state in before]  # type: ignore[index]
    for _, secrets in others:
        assert len(secrets.found(harness)) == len(secrets.words)
    counts = receipt.sessions[gone.id]
    assert (counts.entries > 50, counts.branches, counts.keys, counts.parcels > 1) == (True, 3, 12, True)
    assert receipt.at == harness.clock()


@on_disk
@run
async def test_of_an_erased_user_no_byte_is_left_in_any_session(harness: Harness) -> None:
    sessions, user = await harness.manager(), Secrets(99)
    name = user.word()
    mine = [await sessions.create(user=name) for _ in range(3)]
    other = await sessions.create(user="somebody else")
    secrets = [Secrets(100 + number) for number in range(4)]
    for session, words in zip([*mine, other], secrets, strict=True):
        life = Life(session, words)
        await life.begin()
        await life.go_on(4)
        await life.end()
    receipt = await sessions.erase(user=name)
    assert sorted(receipt.sessions) == sorted(session.id for session in mine)
    assert receipt.scrubbed
    assert [words.found(harness) for words in (user, *secrets[:3])] == [[], [], [], []]
    assert len(secrets[3].found(harness)) == len(secrets[3].words)
    assert [row.id for row in await sessions.list()] == [other.id]
    assert all(parcel.session == other.id for parcel in await sessions.store.parcels(limit=1_000))


@on_disk
@run
async def test_bytes_that_a_reader_protects_are_reported_and_overwritten_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SCRUB_SECONDS", 0.2)
    sessions = await harness.manager()
    ((gone, erased),) = await lives(sessions, 1)
    reader = apsw.Connection(str(harness.folder / "agent.db"))
    reader.execute("BEGIN; SELECT count(*) FROM entry").fetchall()
    receipt = await sessions.erase(session=gone.id)
    assert not receipt.scrubbed
    assert erased.found(harness)
    await (await sessions.create()).append(Message.user("others go on"))
    reader.close(True)
    assert await sessions.store.scrub()
    assert erased.found(harness) == []


@on_disk
@run
async def test_no_byte_is_left_while_other_workers_have_the_file_open(harness: Harness) -> None:
    managers = [await harness.manager() for _ in range(3)]
    (gone, erased), (kept, _) = await lives(managers[0], 2)
    for manager in managers:
        await texts(await manager.open(gone.id))
        [hit async for hit in manager.search("padding")]
    assert (await managers[1].erase(session=gone.id)).scrubbed
    assert erased.found(harness) == []
    for manager in managers:
        with pytest.raises(NotFound):
            await manager.open(gone.id)
        assert len(await rows(await manager.open(kept.id))) == len(await rows(kept))


@on_disk
@run
async def test_destroying_takes_a_session_out_of_every_query(harness: Harness) -> None:
    sessions = await harness.manager()
    (gone, secrets), _ = await lives(sessions, 2)
    await sessions.destroy(gone.id)
    for word in secrets.words:
        assert [hit async for hit in sessions.search(word)] == []
    assert gone.id not in {row.id for row in await sessions.list()}
    assert all(parcel.session != gone.id for parcel in await sessions.store.parcels(limit=1_000))


@run
async def test_a_handle_from_before_an_erasure_changes_nothing_of_the_session_that_has_its_id_now(
    harness: Harness,
) -> None:
    sessions = await harness.manager()
    old = await sessions.create(id="s1")
    await old.append(Message.user("of the old one"))
    await sessions.erase(session="s1")
    harness.clock.advance(1)
    new = await sessions.create(id="s1", title="new")
    await new.append(Message.user("of the new one"))
    late: list[Callable[[], Awaitable[object]]] = [
        lambda: old.append(Message.user("late")),
        lambda: old.set_system("late"),
        lambda: old.rename("late"),
        lambda: old.window(NARROW),
        lambda: old.messages(),
        old.compact,
        old.conversation,
        old.reset,
    ]
    for one in late:
        with pytest.raises(EpochEnded, match="created again"):
            await one()
    assert (await texts(new), new.info.title) == (["of the new one"], "new")
    await new.append(Message.user("goes on"))


@run
async def test_the_keys_of_an_erased_session_are_free_and_its_id_too(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1", system="old")
    await session.append(Message.user("a", id="m1"), key="k")
    await session.acquire()
    await sessions.erase(session="s1")
    again = await sessions.create(id="s1")
    assert await again.messages() == []
    receipt = await again.append(Message.user("b", id="m1"), key="k")
    assert (receipt.repeated, receipt.version, receipt.first) == (False, 1, 1)


@run
async def test_erasing_a_user_leaves_those_without_a_user_and_other_tenants(harness: Harness) -> None:
    sessions, other = await harness.manager(), await harness.manager(tenant="other")
    for manager, id, user in [
        (sessions, "a", "u1"),
        (sessions, "b", None),
        (sessions, "c", "u11"),
        (other, "d", "u1"),
    ]:
        await (await manager.create(id=id, user=user)).append(Message.user("hello"))
    assert list((await sessions.erase(user="u1")).sessions) == ["a"]
    assert sorted(row.id for row in await sessions.list()) == ["b", "c"]
    assert [row.id for row in await other.list()] == ["d"]


@run
async def test_erasing_a_user_who_has_nothing_gives_an_empty_receipt(harness: Harness) -> None:
    receipt = await (await harness.manager()).erase(user="nobody")
    assert (receipt.sessions, receipt.scrubbed) == ({}, True)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_receipt_covers_the_files_of_the_memory(is_clean: bool) -> None:
    class Engine(BuiltinEngine):
        async def scrub(self) -> bool:
            return await super().scrub() and is_clean

    async def test() -> None:
        memory = Engine(SqliteDatabase(None))
        async with SessionManager.open("memory:", memory=memory) as sessions:
            await sessions.create(user="u1")
            assert (await sessions.erase(user="u1")).scrubbed is is_clean
        await memory.close()

    asyncio.run(test())


@run
async def test_erasing_says_what_is_missing(harness: Harness) -> None:
    sessions = await harness.manager()
    with pytest.raises(InputError, match="pass a session or a user"):
        await sessions.erase()
    with pytest.raises(NotFound):
        await sessions.erase(session="nobody")


@run
async def test_erasers_of_one_user_do_not_trip_over_each_other(harness: Harness) -> None:
    managers = [await harness.manager() for _ in range(3)]
    ids = [(await managers[0].create(user="u1")).id for _ in range(20)]
    receipts = await asyncio.gather(*[manager.erase(user="u1") for manager in managers])
    assert sorted(id for receipt in receipts for id in receipt.sessions) == sorted(ids)
    assert list(await managers[0].list()) == []


@run
async def test_a_user_with_many_pages_of_sessions_is_erased_whole(harness: Harness) -> None:
    sessions = await harness.manager()
    for _ in range(230):
        await sessions.create(user="u1")
    assert len((await sessions.erase(user="u1")).sessions) == 230
    assert list(await sessions.list()) == []


def test_the_search_for_bytes_finds_what_is_there(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without this, a search that never finds anything would prove nothing."""
    harness = Harness("sqlite", tmp_path_factory.mktemp("planted"))
    secrets = Secrets(7)
    (harness.folder / "agent.db-wal").write_bytes(b"\0" * 100 + secrets.word()[4:].upper().encode() + b"\0")
    assert len(secrets.found(harness)) == 1
