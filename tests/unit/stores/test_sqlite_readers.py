"""Small reads are made in the thread of the loop while they are quick; all others in threads of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.stores.verification_fixtures import tamper
from turnstate import Budget, Message, Session, SessionManager, codec
from turnstate.context.cut import Strategy
from turnstate.errors import NotFound, StoreDamaged, StoreError
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite import readers as readers_module
from turnstate.stores.sqlite.connection import migrate
from turnstate.stores.sqlite.readers import DISK, QUICK, QUICK_AFTER_DISK, QUICK_READS, Readers, TooMuchToRead
from turnstate.threads import READ


def thread(_: apsw.Connection) -> str:
    return threading.current_thread().name


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    path = str(tmp_path / "agent.db")
    migrate(path)
    one = Readers(path)
    yield one
    one.close()


async def warm(readers: Readers) -> None:
    """Read until the next small read is made in the loop's thread."""
    while await readers.run(thread, here=thread) != "MainThread":
        readers._note_speed(0)
    for _ in range(2 * QUICK_READS):  # whatever the machine does meanwhile
        readers._note_speed(0)


def test_a_small_read_is_made_in_the_loop_after_some_that_were_quick(readers: Readers) -> None:
    async def scene() -> list[str]:
        first = await readers.run(thread, here=thread)
        await warm(readers)
        return [first, await readers.run(thread, here=thread), await readers.run(thread)]

    assert asyncio.run(scene()) == ["turnstate-reader", "MainThread", "turnstate-reader"]


def test_two_slow_reads_send_the_next_ones_to_a_thread(readers: Readers) -> None:
    def slow(_: apsw.Connection) -> None:
        time.sleep(2 * QUICK)

    async def scene() -> list[str]:
        await warm(readers)
        found = list[str]()
        for _ in range(2):
            await readers.run(slow, here=slow)
            found.append(await readers.run(thread, here=thread))
        return found

    assert asyncio.run(scene()) == ["MainThread", "turnstate-reader"]


def test_a_read_from_the_disk_sends_the_next_ones_to_a_thread(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, blocks = 0.0, 0

    def from_disk(_: apsw.Connection) -> None:
        nonlocal waited, blocks
        waited, blocks = waited + 2 * DISK, blocks + 8

    async def scene() -> int:
        await warm(readers)
        monkeypatch.setattr(readers_module, "_waited", lambda: waited)
        monkeypatch.setattr(readers_module, "_blocks_read", lambda: blocks)
        readers._has_used_disk()  # whatever this thread has read before
        await readers.run(from_disk, here=from_disk)
        others = 0
        while await readers.run(thread, here=thread) != "MainThread":
            others += 1
        return others

    assert asyncio.run(scene()) == QUICK_AFTER_DISK


@pytest.mark.parametrize(("longest", "expected"), [(0.0, 10), (3_600.0, 0)])
def test_reads_in_the_loop_let_the_other_tasks_have_their_turn_now_and_then(
    longest: float, expected: int, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers_module, "LONGEST_TURN", longest)

    async def scene() -> int:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await warm(readers)
        other = asyncio.ensure_future(take_turns())
        for _ in range(20):
            readers._note_speed(0)
            assert await readers.run(thread, here=thread) == "MainThread"
        other.cancel()
        return turns

    assert asyncio.run(scene()) == expected


@pytest.mark.parametrize("error", [apsw.BusyError, apsw.CorruptError, TooMuchToRead])
def test_what_fails_in_the_loop_is_done_by_a_thread(error: type[Exception], readers: Readers) -> None:
    def failing(_: apsw.Connection) -> str:
        raise error

    async def scene() -> str:
        await warm(readers)
        return await readers.run(thread, here=failing)

    assert asyncio.run(scene()) == "turnstate-reader"


def test_an_error_of_the_store_is_raised_as_from_a_thread(readers: Readers) -> None:
    def damaged(_: apsw.Connection) -> None:
        raise StoreDamaged("a page")

    async def scene() -> None:
        await warm(readers)
        with pytest.raises(StoreDamaged):
            await readers.run(damaged, here=damaged)
        assert await readers.run(thread, here=thread) == "MainThread"

    asyncio.run(scene())


def test_a_signal_in_a_read_of_the_loop_leaves_no_snapshot_open(readers: Readers) -> None:
    def interrupted(_: apsw.Connection) -> None:
        raise KeyboardInterrupt

    async def scene() -> bool:
        await warm(readers)
        with pytest.raises(KeyboardInterrupt):
            await readers.run(interrupted, here=interrupted)
        return await readers.run(lambda _: False, here=lambda db: db.in_transaction)

    assert asyncio.run(scene())  # its own transaction, which could be begun
    assert readers._here is not None
    assert not readers._here.in_transaction


def test_a_closed_store_is_not_read_in_the_loop_either(readers: Readers) -> None:
    async def scene() -> None:
        await warm(readers)
        readers.close()
        with pytest.raises(StoreError, match="closed"):
            await readers.run(thread, here=thread)

    asyncio.run(scene())


@pytest.fixture
def in_loop(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reads in the loop's thread found; None for one that was left to another thread."""
    results, read_here = list[Any](), Readers._read_here
    monkeypatch.setattr(
        Readers, "_read_here", lambda self, job: results.append(found := read_here(self, job)) or found
    )
    return results


@pytest.mark.parametrize("option", ["", "?commit=thread"])
def test_long_messages_are_read_in_a_thread_and_all_reads_of_a_store_that_wants_one(
    option: str, tmp_path: Path, in_loop: list[Any]
) -> None:
    async def scene() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}{option}") as sessions:
            session = await sessions.create()
            await session.append(*(Message.user(f"short {number}") for number in range(30)))
            while not any(in_loop) and (not option or len(in_loop) < 20):
                assert [one.text for one in await session.messages(last=2)] == ["short 28", "short 29"]
                in_loop.extend([None] if option else [])
            assert any(in_loop) == (option == "")
            for size, count in ((READ, 1), (READ // 3, 3)):
                await session.append(*(Message.user("x" * size) for _ in range(count)))
                in_loop.clear()
                read = await session.messages(last=count + 1)
                assert [len(one.text) for one in read[1:]] == [size] * count
                assert all(found is None for found in in_loop)
            for _ in range(3):
                with pytest.raises(NotFound):
                    await sessions.open("no such session")

    asyncio.run(scene())


async def warmed(sessions: SessionManager, session: Session) -> None:
    """Read until small reads of a store are made in the loop's thread."""
    assert isinstance(sessions.store, SqliteStore)
    await session.messages(last=1)
    await warm(sessions.store._readers)


@pytest.mark.parametrize(("size", "is_small"), [(100, True), (READ // 8, False)])
def test_a_short_session_is_loaded_in_the_loop_and_one_of_long_messages_in_a_thread(
    size: int, is_small: bool, tmp_path: Path, in_loop: list[Any]
) -> None:
    async def scene() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}") as sessions:
            session = await sessions.create(system="You are terse.")
            await session.append(*(Message.user("x" * size) for _ in range(10)))
            whole = await session.window(Budget(100_000))
            await warmed(sessions, session)
            in_loop.clear()
            again = await sessions.open(session.id)
            window = await again.window(Budget(100_000))
            assert codec.dump(window.messages) == codec.dump(whole.messages)
            assert bool(in_loop[-1]) == is_small

    asyncio.run(scene())


def test_a_session_with_a_long_prompt_before_its_cut_is_loaded_in_a_thread(
    tmp_path: Path, in_loop: list[Any]
) -> None:
    """A job in the loop cannot wait for a thread that decodes."""

    async def scene() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}") as sessions:
            session = await sessions.create(system="word " * (READ // 5))
            for number in range(3):
                await session.append(Message.user(f"question {number}"), Message.assistant("answer"))
            await session.compact(strategy=Strategy(keep=1))
            whole = await session.window(Budget(100_000))
            await warmed(sessions, session)
            in_loop.clear()
            window = await (await sessions.open(session.id)).window(Budget(100_000))
            assert codec.dump(window.messages) == codec.dump(whole.messages)
            assert in_loop[-1] is None

    asyncio.run(scene())


def test_what_is_damaged_is_looked_for_in_a_thread(tmp_path: Path, in_loop: list[Any]) -> None:
    async def scene() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}") as sessions:
            session = await sessions.create()
            await session.append(*(Message.user(f"message {number}") for number in range(5)))
            await warmed(sessions, session)
            tamper(tmp_path / "agent.db", "UPDATE entry SET body = x'00' WHERE seq = 4")
            in_loop.clear()
            read = await session.messages(last=3)
            assert [one.text for one in read] == ["message 1", "message 2", "message 4"]
            assert in_loop[-1] is None
            assert "1 damaged entries" in session.notices[0]

    asyncio.run(scene())
