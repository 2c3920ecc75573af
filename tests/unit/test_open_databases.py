from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.harness.open_files import all_closed
from tests.harness.posix_locks import IN_USE, SHARED, is_locked
from turnstate import open_databases
from turnstate.descriptors import inode_of, ours
from turnstate.memory.builtin.sqlite import SqliteDatabase
from turnstate.open_databases import covers, hold
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite.connection import Connection, connect, migrate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate(str(path := tmp_path / "agent.db"))
    return path


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    with closing(connect(str(path), write=True)) as db:
        yield db


def files(path: Path) -> list[Path]:
    return [path, Path(f"{path}-wal"), Path(f"{path}-shm")]


def test_a_database_and_its_side_files_are_covered_while_it_is_open(path: Path) -> None:
    (other := path.with_name("notes.txt")).write_text("")
    assert not covers(path.stat())
    with closing(connect(str(path), write=True)):
        assert [covers(one.stat()) for one in files(path)] == [True, True, True]
        assert not covers(other.stat())
    assert not covers(path.stat())


def test_a_test_that_leaves_a_database_open_fails(path: Path) -> None:
    with pytest.raises(AssertionError, match=r"left open: .*agent\.db"), all_closed():
        db = connect(str(path), write=True)
    db.close()
    with all_closed(), closing(connect(str(path), write=True)):
        pass


def test_side_files_that_appear_later_are_covered(path: Path) -> None:
    with closing(connect(str(path), write=False)) as db:
        assert not os.path.exists(f"{path}-wal")
        db.execute("SELECT count(*) FROM session").fetchall()
        Path(f"{path}-wal").touch()  # as another connection would
        assert covers(os.stat(f"{path}-wal"))


@pytest.mark.usefixtures("db")
def test_other_names_of_the_same_file_are_covered(path: Path, tmp_path: Path) -> None:
    for number, one in enumerate(files(path)):
        os.link(one, second := tmp_path / f"link {number}")
        os.symlink(one, third := tmp_path / f"symlink {number}")
        assert covers(os.stat(second))
        assert covers(os.stat(third))


def test_a_database_opened_by_a_symbolic_link_is_covered_with_its_side_files(path: Path) -> None:
    os.symlink(path, link := path.with_name("link.db"))
    with closing(connect(str(link), write=True)):
        assert [covers(one.stat()) for one in files(path)] == [True, True, True]


@pytest.mark.usefixtures("db")
def test_a_side_file_that_lost_its_name_stays_covered(path: Path) -> None:
    with open(f"{path}-shm", "rb") as file:
        os.rename(f"{path}-shm", f"{path}-elsewhere")
        assert covers(os.fstat(file.fileno()))


def test_a_database_is_covered_until_its_last_connection_is_closed(path: Path, db: Connection) -> None:
    connect(str(path), write=False).close()
    assert covers(path.stat())
    db.close()
    db.close()
    assert not covers(path.stat())


def test_a_connection_that_cannot_be_opened_covers_nothing(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError):
        connect(str(tmp_path / "missing.db"), write=True)
    with pytest.raises(apsw.CantOpenError):
        connect(str(tmp_path), write=True)
    assert not covers(tmp_path.stat())


def test_a_program_that_opens_a_database_by_itself_can_register_it(path: Path) -> None:
    held = hold(str(path))
    assert covers(path.stat())
    held.release()
    assert not covers(path.stat())


def test_stores_and_memories_cover_their_files(tmp_path: Path) -> None:
    async def run() -> None:
        store, memory = SqliteStore(str(tmp_path / "agent.db")), SqliteDatabase(str(tmp_path / "memory.db"))
        there = sorted(tmp_path.iterdir())
        assert len(there) == 6
        assert all(covers(one.stat()) for one in there)
        await store.close()
        await memory.close()
        assert not any(covers(one.stat()) for one in tmp_path.iterdir())

    asyncio.run(run())


def test_two_stores_of_one_process_exclude_each_other_when_they_write(path: Path, db: Connection) -> None:
    with closing(connect(str(path), write=True)) as other:
        other.set_busy_handler(None)
        with db.writing():
            db.execute("BEGIN")  # without a lock of SQLite
            with pytest.raises(apsw.BusyError, match="another process is writing"):
                other.begin_write()
            assert not other.hold.try_to_write(other)
        with other.writing():
            db.set_busy_handler(None)
            with pytest.raises(apsw.BusyError):
                db.begin_write()


FORKED = """
import os, sys, time
from turnstate.stores.sqlite.connection import connect

db = connect(sys.argv[1], write=True)
db.begin_write()
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""


def test_a_child_does_not_keep_the_locks_of_a_killed_parent(path: Path, db: Connection) -> None:
    run = [sys.executable, "-c", FORKED, str(path)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert not db.hold.try_to_write(db)
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # it lives
            db.set_busy_timeout(60_000)  # the child closes its copies as soon as it runs
            db.begin_write()
            db.end_write()
        finally:
            parent.kill()
            os.kill(child, signal.SIGKILL)


@pytest.fixture
def foreign(path: Path) -> Iterator[apsw.Connection]:
    """A connection that the program opened by itself, in the same SQLite as ours."""
    with closing(apsw.Connection(str(path))) as foreign:
        foreign.execute("SELECT count(*) FROM session").fetchall()
        yield foreign


def has_locks(path: Path) -> bool:
    return is_locked(path, SHARED) and is_locked(Path(f"{path}-shm"), IN_USE)


def test_a_connection_of_the_program_keeps_its_locks_when_ours_are_closed(
    path: Path, foreign: apsw.Connection
) -> None:
    assert has_locks(path)
    memory = os.stat(f"{path}-shm")
    before = 0
    for number in range(3):
        with closing(connect(str(path), write=True)) as db:
            db.execute("SELECT count(*) FROM session").fetchall()
        assert has_locks(path)
        assert os.stat(f"{path}-shm").st_size == memory.st_size
        assert covers(path.stat())
        before = before or len(os.listdir("/dev/fd"))
        assert len(os.listdir("/dev/fd")) == before, number
    foreign.close()
    assert not covers(path.stat())


def test_what_was_kept_for_the_program_does_not_keep_the_log(path: Path, foreign: apsw.Connection) -> None:
    connect(str(path), write=True).close()
    foreign.close()
    with closing(connect(str(path), write=True)) as db:
        db.execute("UPDATE session SET title = title")
    assert not os.path.exists(f"{path}-wal")


def test_files_may_be_replaced_while_the_program_has_the_old_ones_open(
    path: Path, foreign: apsw.Connection
) -> None:
    connect(str(path), write=True).close()
    foreign.close()
    with closing(apsw.Connection(str(path))):  # has not read anything, so SQLite removes the side files
        for _ in range(2):
            with closing(connect(str(path), write=True)) as db:
                db.execute("UPDATE session SET title = title")
                db.check_files()
                assert all(covers(one.stat()) for one in files(path))
            assert not os.path.exists(f"{path}-shm")


@pytest.mark.usefixtures("foreign")
def test_a_shared_memory_that_the_program_uses_is_never_emptied(path: Path) -> None:
    size = os.stat(f"{path}-shm").st_size
    Path(f"{path}-shm").read_bytes()  # drops the program's lock on it
    held = hold(str(path))
    assert os.stat(f"{path}-shm").st_size == size > 3
    held.release()


def test_a_shared_memory_from_before_a_crash_is_emptied(path: Path) -> None:
    Path(f"{path}-shm").write_bytes(bytes(32_768))
    with open(f"{path}-shm", "rb"):
        held = hold(str(path))
        assert os.stat(f"{path}-shm").st_size == 3
    held.release()


def test_a_file_that_another_process_keeps_locked_leaves_nothing_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_databases, "PATIENCE", 0.01)
    other = os.open(path, os.O_RDWR)  # its lock conflicts as that of another process does
    ours.add(other)
    assert open_databases._lock_bytes(other, fcntl.F_WRLCK, open_databases._SHARED)
    with pytest.raises(apsw.BusyError, match="locked by another process"):
        Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    ours.remove(other)
    os.close(other)
    assert inode_of(path.stat()) not in open_databases._held


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no locks"), KeyboardInterrupt()])
def test_a_failed_wait_for_the_right_to_write_leaves_it_to_others(
    error: BaseException, path: Path, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = open_databases._lock_bytes

    def fail_once(descriptor: int, kind: int, lock: open_databases.Lock) -> bool:
        monkeypatch.setattr(open_databases, "_lock_bytes", real)
        real(descriptor, kind, lock)
        raise error

    monkeypatch.setattr(open_databases, "_lock_bytes", fail_once)
    with pytest.raises(type(error)):
        db.begin_write()
    with closing(connect(str(path), write=True)) as other, other.writing():
        db.set_busy_handler(None)
        with pytest.raises(apsw.BusyError):
            db.begin_write()


def test_a_process_without_descriptors_does_not_take_itself_for_guarded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def exhausted(name: str, *rest: int, **more: int) -> int:
        if str(name).endswith("-shm"):
            raise OSError(errno.EMFILE, "too many open files")
        return real(name, *rest, **more)

    monkeypatch.setattr(os, "open", exhausted)
    with pytest.raises(apsw.CantOpenError, match="too many open files"):
        Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    monkeypatch.undo()
    with closing(connect(str(path), write=True)):
        assert is_locked(Path(f"{path}-shm"), IN_USE)


def test_canaries_are_not_kept_for_ever(path: Path) -> None:
    connect(str(path), write=True).close()
    before = open_databases._flock.cache_info().currsize
    connect(str(path), write=True).close()
    assert open_databases._flock.cache_info().currsize == before
