"""A store on a read-only disk can be read, even while another process writes to it; nothing is written.

The disk is a folder that is mounted a second time, read-only: so root cannot write to it either, and a
store that is in use can be read through it.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.mounts import ReadOnlyView
from turnstate import Budget, Message, SessionManager
from turnstate.errors import StoreUnavailable
from turnstate.session import Session
from turnstate.stores.sqlite import SqliteStore

FILE = "agent.db"

WRITER = """
import asyncio, sys
from turnstate import Message, SessionManager

async def main(url, first):
    async with SessionManager.open(url) as sessions:
        session = await sessions.open("talk")
        for number in range(first, first + 5):
            await session.append(Message.user(f"question {number}"))
        print("appended", flush=True)
        sys.stdin.read()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
"""Appends five messages, says so, and keeps the store open until it is told to end."""


@pytest.fixture
def folder(home: Path) -> Path:
    (home / "folder").mkdir()
    return home / "folder"


@pytest.fixture
def view(home: Path, folder: Path) -> Iterator[Path]:
    with ReadOnlyView(home / "view", folder) as mounted:
        yield mounted.path


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/{FILE}"


async def talk(session: Session, first: int, last: int) -> None:
    for number in range(first, last):
        await session.append(Message.user(f"question {number}"))


async def fill(folder: Path) -> None:
    async with await SessionManager.open(url(folder)) as sessions:
        await talk(await sessions.create(id="talk", tags=["red"]), 0, 5)


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.name.endswith("-shm")}


async def seen(folder: Path) -> list[str]:
    """Read everything in every way, and check that it agrees."""
    async with await SessionManager.open(url(folder)) as sessions:
        assert [row.id for row in await sessions.list(tag="red")] == ["talk"]
        session = await sessions.open("talk")
        messages = [message.text for message in await session.messages()]
        window = await session.preview(Budget(10_000))
        assert [message.text for message in window.messages] == messages
        found = [one.message.text async for one in sessions.search("question")]
        assert sorted(found) == sorted(messages)
        assert [finding async for finding in sessions.store.verify(repair=False)] == []
        assert (await sessions.store.facts())["access"] == "read-only"
        assert session.notices == ()
    return messages


def count(number: int) -> list[str]:
    return [f"question {one}" for one in range(number)]


def test_a_store_that_no_process_has_open_is_read(folder: Path, view: Path) -> None:
    asyncio.run(fill(folder))
    before = contents(folder)
    assert asyncio.run(seen(view)) == count(5)
    assert contents(folder) == before


def test_a_store_that_was_left_with_its_wal_is_read_with_it(folder: Path, view: Path, home: Path) -> None:
    async def copy_while_open() -> None:
        async with await SessionManager.open(url(home)) as sessions:
            await talk(await sessions.create(id="talk", tags=["red"]), 0, 5)
            for name in (FILE, f"{FILE}-wal"):
                shutil.copy(home / name, folder / name)

    asyncio.run(copy_while_open())
    before = contents(folder)
    assert set(before) == {FILE, f"{FILE}-wal"}
    assert asyncio.run(seen(view)) == count(5)
    assert contents(folder) == before
    assert {one.name for one in folder.iterdir()} == {FILE, f"{FILE}-wal"}


def test_a_store_in_use_is_read_as_it_is_now(folder: Path, view: Path) -> None:
    async def both() -> None:
        async with await SessionManager.open(url(folder)) as sessions:
            session = await sessions.create(id="talk", tags=["red"])
            await talk(session, 0, 5)
            assert await seen(view) == count(5)
            async with await SessionManager.open(url(view)) as watching:
                handle = await watching.open("talk")
                for number in range(5, 25):
                    await talk(session, number, number + 1)
                    assert len(await handle.messages()) == number + 1

    asyncio.run(both())


def test_a_reader_sees_what_a_writer_that_opens_later_appends(folder: Path, view: Path) -> None:
    async def both() -> None:
        await fill(folder)
        async with await SessionManager.open(url(view)) as watching:
            handle = await watching.open("talk")
            assert len(await handle.messages()) == 5
            for turn in range(1, 4):
                # In a process of its own: SQLite shares what it maps of a file among the connections of one
                # process, also between one that may write and one that may not.
                command = [sys.executable, "-c", WRITER, url(folder), str(5 * turn)]
                writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                assert writer.stdout is not None
                assert await asyncio.to_thread(writer.stdout.readline) == b"appended\n"
                assert len(await handle.messages()) == 5 * turn + 5
                await asyncio.to_thread(writer.communicate)
                assert writer.returncode == 0
                assert len(await handle.messages()) == 5 * turn + 5

    asyncio.run(both())


def test_writing_is_one_typed_error(folder: Path, view: Path) -> None:
    async def write() -> None:
        async with await SessionManager.open(url(view)) as sessions:
            session = await sessions.open("talk")
            with pytest.raises(StoreUnavailable, match="cannot be written"):
                await session.append(Message.user("more"))
            with pytest.raises(StoreUnavailable, match="cannot be written"):
                await sessions.create()
            with pytest.raises(StoreUnavailable, match="cannot be written"):
                await sessions.destroy("talk")
            assert len(await session.messages()) == 5

    asyncio.run(fill(folder))
    before = contents(folder)
    asyncio.run(write())
    assert contents(folder) == before


def test_a_store_that_is_not_there_is_one_typed_error(view: Path) -> None:
    with pytest.raises(StoreUnavailable):
        SqliteStore(str(view / FILE))
