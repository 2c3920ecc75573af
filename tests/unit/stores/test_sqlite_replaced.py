"""Another program removes or replaces files of an open store: what no one could read is not acknowledged."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from turnstate import Message, open_databases
from turnstate.descriptors import inode_of
from turnstate.errors import StoreDamaged, StoreUnavailable
from turnstate.memory.builtin import connect as open_memory
from turnstate.memory.builtin import sqlite as memory_file
from turnstate.memory.builtin.sqlite import SqliteDatabase
from turnstate.memory.port import User
from turnstate.session import SessionManager
from turnstate.stores.sqlite import SqliteStore, connection, readers, writer
from turnstate.stores.sqlite.faults import FilesReplaced
from turnstate.stores.values import Address

USER = User("default", "ann")


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LOOK_AGAIN", 0.0)
    monkeypatch.setattr(readers, "LOOK_AGAIN", 0.0)
    monkeypatch.setattr(writer, "LOOK_AGAIN", 0.0)


def remove_sides(path: Path) -> None:
    for side in ("-wal", "-shm"):
        os.unlink(f"{path}{side}")


def replace_log(path: Path) -> None:
    shutil.copy(f"{path}-wal", f"{path}-copy")
    os.rename(f"{path}-copy", f"{path}-wal")


def stored(path: Path) -> int:
    """Return how many messages the next program finds."""

    async def run() -> int:
        async with SessionManager.open(f"sqlite:///{path}") as sessions:
            return len(await (await sessions.open("s")).messages())

    return asyncio.run(run())


async def opened(path: Path, work: Callable[[SessionManager], Awaitable[None]]) -> None:
    async with SessionManager.open(f"sqlite:///{path}") as sessions:
        await sessions.create(id="s")  # and carried over into the file
    async with SessionManager.open(f"sqlite:///{path}") as sessions:
        session = await sessions.open("s")
        await session.append(Message.user("first"), key="first")
        await work(sessions)


@pytest.mark.parametrize("fault", [remove_sides, replace_log])
def test_a_change_with_a_key_is_written_to_the_new_files(
    fault: Callable[[Path], None], tmp_path: Path
) -> None:
    path, copy = tmp_path / "agent.db", tmp_path / "copy.db"

    async def work(sessions: SessionManager) -> None:
        fault(path)
        session = await sessions.open("s")
        for number in range(20):
            await session.append(Message.user("again"), key=f"again {number}")
        for side in ("", "-wal"):  # as the process would leave them if it were killed now
            shutil.copy(f"{path}{side}", f"{copy}{side}")

    asyncio.run(opened(path, work))
    assert stored(copy) >= 20
    assert stored(path) >= 20


@pytest.mark.parametrize("fault", [remove_sides, replace_log])
def test_a_commit_that_notices_first_is_written_to_the_new_files(
    fault: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        session = await sessions.open("s")
        await session.append(Message.user("second"), key="second")
        fault(path)
        await session.append(Message.user("third"), key="third")

    asyncio.run(opened(path, work))
    assert stored(path) >= 1


def test_a_connection_to_replaced_files_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    connection.migrate(str(path))
    writing = connection.connect(str(path), write=True)
    remove_sides(path)
    with pytest.raises(FilesReplaced):
        connection.connect(str(path), write=True)
    writing.close()
    assert inode_of(path.stat()) not in open_databases._held
    connection.connect(str(path), write=True).close()


def test_a_change_without_a_key_is_not_acknowledged_and_the_next_one_is_written(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        remove_sides(path)
        change = sessions.store._writer.run(lambda db: db.execute("SELECT 1").fetchall())  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await change
        await (await sessions.open("s")).append(Message.user("again"), key="again")

    asyncio.run(opened(path, work))
    assert stored(path) == 1


def test_a_session_is_told_once_that_files_were_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        session = await sessions.open("s")
        assert session.notices == ()
        remove_sides(path)
        for _ in range(2):
            assert await session.messages() == []
            (notice,) = session.notices
            assert notice.startswith(f"another program removed or replaced {path}")
            assert notice.endswith("the store was opened again")
        assert notice in caplog.text

    asyncio.run(opened(path, work))


def test_a_store_that_only_writes_finds_the_new_files(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        remove_sides(path)
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await sessions.store.delivered("none")
        await sessions.store.delivered("none")

    asyncio.run(opened(path, work))


def test_all_stores_of_a_process_go_on_with_the_new_files(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(first: SessionManager) -> None:
        async with SessionManager.open(f"sqlite:///{path}") as second:
            session, other = await first.open("s"), await second.open("s")
            remove_sides(path)
            await session.append(Message.user("one"), key="one")
            await (await second.open("s")).append(Message.user("two"), key="two")
            replace_log(path)
            await asyncio.gather(*(one.messages() for one in (session, other) * 3))
            assert await (await first.open("s")).append(Message.user("three"), key="three")

    asyncio.run(opened(path, work))
    assert stored(path) >= 1


def test_a_file_of_another_program_in_the_place_of_a_store_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE other (x)")
    before = (tmp_path / "other.db").read_bytes()

    async def work(sessions: SessionManager) -> None:
        session = await sessions.open("s")
        remove_sides(path)
        os.rename(tmp_path / "other.db", path)
        with pytest.raises(StoreDamaged, match="another program"):
            await session.append(Message.user("lost"), key="lost")
        with pytest.raises(StoreUnavailable, match="open the store again"):
            await sessions.create(id="lost")

    asyncio.run(opened(path, work))
    assert path.read_bytes() == before


def test_a_read_in_the_loop_does_not_answer_from_a_file_that_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        store, at = sessions.store, Address(tenant="default", session="s")
        assert isinstance(store, SqliteStore)
        while store._readers._here is None:
            await store.get(at)
        assert (await store.get(at)).id == "s"
        os.rename(path, tmp_path / "moved.db")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await store.get(at)

    asyncio.run(opened(path, work))


def test_a_session_is_told_once_that_this_process_drops_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"

    async def work(sessions: SessionManager) -> None:
        session = await sessions.open("s")
        assert session.notices == ()
        for number in range(2):
            for side in ("", "-wal", "-shm"):
                Path(f"{path}{side}").read_bytes()
            await session.append(Message.user("next"), key=f"next {number}")
            (notice,) = session.notices
            assert notice.startswith(f"this process has opened and closed {path}")

    asyncio.run(opened(path, work))
    assert stored(path) == 3


def test_the_old_log_is_not_copied_over_the_new_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "agent.db", tmp_path / "copy.db"

    async def work(_: SessionManager) -> None:
        remove_sides(path)
        shutil.copy(path, copy)
        os.rename(copy, path)

    asyncio.run(opened(path, work))
    assert stored(path) == 0


def remembered(path: Path) -> list[str]:
    """Return the messages of a memory that the next program finds."""
    with closing(apsw.Connection(str(path))) as db:
        return [text for (text,) in db.execute("SELECT text FROM document ORDER BY number").fetchall()]


@pytest.mark.parametrize("fault", [remove_sides, replace_log])
def test_a_memory_delivers_to_the_new_files(fault: Callable[[Path], None], tmp_path: Path) -> None:
    path, copy = tmp_path / "memory.db", tmp_path / "copy.db"

    async def run() -> None:
        await (await open_memory(str(path))).close()
        engine = await open_memory(str(path))
        fault(path)
        await asyncio.gather(*(engine.remember(USER, f"note {number}") for number in range(5)))
        assert len(await engine.turns(USER, limit=9)) == 5
        fault(path)
        assert len(await engine.turns(USER, limit=9)) <= 5
        await engine.remember(USER, "last")
        for side in ("", "-wal"):  # as the process would leave them if it were killed now
            shutil.copy(f"{path}{side}", f"{copy}{side}")
        await engine.close()

    asyncio.run(run())
    assert "last" in remembered(copy)
    assert "last" in remembered(path)


def test_a_memory_that_is_gone_acknowledges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def run() -> None:
        await (await open_memory(str(path))).close()
        engine = await open_memory(str(path))
        path.unlink()
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            await engine.remember(USER, "lost")
        path.touch()
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await engine.remember(USER, "lost")
        await engine.close()

    asyncio.run(run())
    assert not path.read_bytes()


def test_all_memories_of_a_process_go_on_with_the_new_files(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def run() -> None:
        first = await open_memory(str(path))
        await first.close()
        first, second = await open_memory(str(path)), await open_memory(str(path))
        remove_sides(path)
        for number in range(2):
            for engine in (first, second):
                await engine.remember(USER, f"note {number}")
        assert len(await first.turns(USER, limit=9)) == 4
        await first.close()
        await second.close()

    asyncio.run(run())
    assert len(remembered(path)) == 4


def test_files_that_a_new_memory_created_itself_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"

    async def run() -> None:
        monkeypatch.setattr(connection, "LOOK_AGAIN", 100.0)
        engine = await open_memory(str(path))
        remove_sides(path)
        monkeypatch.setattr(connection, "LOOK_AGAIN", 0.0)
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await engine.remember(USER, "lost")  # the tables were in the WAL
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("step", ["settle_log", "_create", "connect"])
def test_a_memory_that_cannot_be_opened_leaves_nothing_open(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "memory.db")
    asyncio.run(SqliteDatabase(path).close())

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "I/O")

    def only_to_write(path: str, *, write: bool) -> connection.Connection:
        if not write:
            fail()
        return connection.connect(path, write=write)

    monkeypatch.setattr(memory_file, step, only_to_write if step == "connect" else fail)
    with pytest.raises(StoreUnavailable, match="I/O"):
        SqliteDatabase(path)
    assert inode_of(os.stat(path)) not in open_databases._held
