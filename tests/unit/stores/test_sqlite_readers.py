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

from turnstate import Message, SessionManager
from turnstate.errors import NotFound, StoreDamaged, StoreError
from turnstate.stores.sqlite.connection import migrate
from turnstate.stores.sqlite.readers import QUICK, QUICK_READS, Readers, TooLarge


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


@pytest.mark.parametrize("error", [apsw.BusyError, apsw.CorruptError, TooLarge])
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


@pytest.mark.parametrize("option", ["", "?commit=thread"])
def test_long_messages_are_read_in_a_thread_and_all_reads_of_a_store_that_wants_one(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop = list[Any]()
    read_here = Readers._read_here
    monkeypatch.setattr(
        Readers, "_read_here", lambda self, job: in_loop.append(found := read_here(self, job)) or found
    )

    async def scene() -> None:
        async with SessionManager.open(f"sqlite:///{tmp_path / 'agent.db'}{option}") as sessions:
            session = await sessions.create()
            await session.append(*(Message.user(f"short {number}") for number in range(30)))
            while not any(in_loop) and (not option or len(in_loop) < 20):
                assert [one.text for one in await session.messages(last=2)] == ["short 28", "short 29"]
                in_loop.extend([None] if option else [])
            await session.append(Message.user("x" * 30_000))
            assert any(in_loop) == (option == "")
            in_loop.clear()
            assert [len(one.text) for one in await session.messages(last=2)] == [8, 30_000]
            assert all(found is None for found in in_loop)
            for _ in range(3):
                with pytest.raises(NotFound):
                    await sessions.open("no such session")

    asyncio.run(scene())
