"""Opening a file: it is made, or it is ours, or it is refused in words and left as it was."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.harness.thoroughness import LONG as THOROUGH
from tests.harness.thoroughness import rng
from tests.unit.stores.verification_fixtures import (
    LONG,
    NOW,
    furnish,
    furnished,
    left_open,
    run,
    said,
    tables,
    tamper,
    verified,
)
from turnstate.errors import InputError, NewerFormat, StoreDamaged, StoreError, StoreUnavailable
from turnstate.stores.sqlite import SqliteStore, connect
from turnstate.stores.sqlite.connection import connect as connection
from turnstate.stores.sqlite.connection import migrated
from turnstate.stores.sqlite.queries import SQL
from turnstate.stores.values import Change

pytestmark = pytest.mark.req("G3")

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files but the shared memory of the WAL, which has no data."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.name.endswith("-shm")}


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    assert verified(furnished(path)) == []


@pytest.mark.parametrize("content", [b"hello\n" * 900, b"\0" * 5_000, b"SQLite format 3\0" + b"\xff" * 9_000])
def test_what_is_no_database_is_refused_and_left_as_it_is(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=str(path)):
        SqliteStore(str(path))
    assert contents(path.parent) == {"agent.db": content}


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_the_database_of_another_program_is_refused_and_left_as_it_is(mode: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("CREATE TABLE entry (a, b)")
    before = contents(path.parent)
    with pytest.raises(StoreDamaged, match="another program"):
        SqliteStore(str(path))
    assert contents(path.parent) == before


def test_the_open_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    origin = path.with_name("origin.db")
    with closing(sqlite3.connect(origin)) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute("CREATE TABLE entry (a, b)")
        for end in ("", "-wal"):
            shutil.copy(f"{origin}{end}", f"{path}{end}")
    origin.unlink()
    before = contents(path.parent)
    assert before["agent.db-wal"]
    with pytest.raises(StoreDamaged, match="another program"):
        SqliteStore(str(path))
    assert contents(path.parent) == before


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_newer_schema_is_refused_and_left_as_it_is(was_closed: bool, path: Path) -> None:
    async def outgrow(store: SqliteStore) -> None:
        await furnish(store)
        await store._writer.run_alone(lambda db: db.pragma("user_version", 99))

    if was_closed:
        run(path, outgrow)
    else:
        left_open(path, outgrow)
    before = contents(path.parent)
    assert ("agent.db-wal" in before) is not was_closed
    with pytest.raises(NewerFormat, match="schema 99"):
        SqliteStore(str(path))
    assert contents(path.parent) == before


def test_a_store_whose_number_of_the_schema_is_lost_is_called_damaged(path: Path) -> None:
    furnished(path)
    tamper(path, "PRAGMA user_version = 0")
    before = tables(path)
    with pytest.raises(StoreDamaged, match="its schema has the number 0"):
        SqliteStore(str(path))
    assert tables(path) == before


def test_a_store_that_was_never_closed_opens_with_everything(path: Path) -> None:
    left_open(path, furnish)
    assert len(tables(path)["entry"]) == 12
    assert verified(path) == []


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        asyncio.run(connect(f"sqlite:///{tmp_path}"))
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(str(tmp_path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(str(tmp_path / "nowhere" / "agent.db"))


@pytest.fixture
def frozen(path: Path) -> Iterator[Path]:
    """A store whose file no user can write, not even root."""
    furnished(path)
    if os.geteuid() != 0:
        path.chmod(0o444)
        yield path
        return
    if (
        shutil.which("chattr") is None
        or subprocess.run(["chattr", "+i", path], capture_output=True).returncode
    ):
        pytest.skip("as root, needs chattr and a file system that knows it")
    try:
        yield path
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


def test_a_file_that_cannot_be_written_is_read_and_an_append_is_refused(frozen: Path) -> None:
    async def use(store: SqliteStore) -> None:
        assert (await store.get(LONG)).seq == 7
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.commit(Change(at=LONG, now=NOW, records=(said("z", "z"),)))
        assert (await store.get(LONG)).seq == 7

    run(frozen, use)


def test_a_changed_byte_of_the_header_is_harmless_or_reported(
    path: Path, record_property: Callable[[str, object], None]
) -> None:
    whole, data, counts = tables(furnished(path)), path.read_bytes(), Counter[str]()
    for place in range(100) if THOROUGH else rng("header").sample(range(100), 20):
        for other in {0, 0xFF, data[place] ^ 1, data[place] ^ 0x40} - {data[place]}:
            for one in path.parent.iterdir():
                one.unlink()
            path.write_bytes(data[:place] + bytes([other]) + data[place + 1 :])
            counts[_received(path, whole)] += 1
    record_property("counted", ("bytes of the header", dict(counts)))


def _received(path: Path, whole: dict[str, list[Any]]) -> str:
    try:
        if verified(path):
            return "reported by a check"
        assert tables(path) == whole
    except StoreError:
        return "refused"
    except NewerFormat:
        return "taken for a newer one"
    return "harmless"


def test_a_file_that_was_cut_off_is_refused_and_left_as_it_is(path: Path) -> None:
    data = furnished(path).read_bytes()
    for size in sorted({*range(PAGE, len(data), PAGE), *range(100, len(data) - PAGE, 7_001)}):
        path.write_bytes(data[:size])
        with pytest.raises(StoreDamaged, match=str(path)):
            SqliteStore(str(path))
        assert contents(path.parent) == {"agent.db": data[:size]}


def test_a_file_that_lost_a_part_of_its_last_page_is_opened_and_reported(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        records = tuple(said(f"long {number}", "word " * 200) for number in range(30))
        await store.commit(Change(at=LONG, now=NOW, records=records))

    run(furnished(path), fill)
    data = path.read_bytes()
    for lost in (1, 100, PAGE - 1):
        path.write_bytes(data[:-lost])
        assert verified(path) != []


def test_a_nearly_empty_file_ends_with_its_schema_and_is_refused_without_a_part_of_it(path: Path) -> None:
    data = furnished(path).read_bytes()
    for lost in (1, 100, PAGE - 1):
        path.write_bytes(data[:-lost])
        with pytest.raises(StoreDamaged, match=str(path)):
            SqliteStore(str(path))
        assert contents(path.parent) == {"agent.db": data[:-lost]}


def test_the_linked_sqlite_is_one_that_does_not_damage_files() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


def test_a_statement_is_not_prepared_again_for_another_limit(path: Path) -> None:
    """SQLite asks the authorizer while it prepares a statement, and never while it runs one."""
    furnished(path)
    for db in (migrated(str(path)), connection(str(path), write=False)):
        with closing(db):
            asked, which = list[object](), {"key": 1, "branch": 1, "first": 1, "last": 9}
            db.authorizer = lambda *about, asked=asked: asked.append(about) or apsw.SQLITE_OK
            counts = list[int]()
            for limit in (1, 2, 3):
                assert len(db.execute(SQL["read"], which | {"limit": limit}).fetchall()) == limit
                counts.append(len(asked))
            assert counts == [counts[0]] * 3 != [0] * 3
