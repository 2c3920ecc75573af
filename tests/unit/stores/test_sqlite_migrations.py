"""Migrations: all of one or nothing of it, whenever a process dies and however many open a file at once.

`make test` kills one migration before every fifth statement, `make faults` four before every statement.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from thoroughness import LONG
from verification_fixtures import furnished, tables, verified

from turnstate.errors import NewerFormat
from turnstate.stores.sqlite import SqliteStore, connection
from turnstate.stores.sqlite.queries import MIGRATIONS

pytestmark = pytest.mark.req("G3", "G6")

STEP = 1 if LONG else 5
PROGRAM = Path(__file__).with_name("migration_process.py")
MORE = "CREATE TABLE second (a INTEGER PRIMARY KEY, b TEXT) STRICT; INSERT INTO second VALUES (1, 'one');"
BROKEN = "CREATE TABLE third (a TEXT) STRICT; INSERT INTO nowhere VALUES (1);"


def lines(*arguments: object) -> list[Any]:
    """Run the program, and return what it printed."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def schema(path: Path) -> tuple[int, list[str]]:
    db = apsw.Connection(str(path))
    try:
        return int(db.pragma("user_version")), sorted(
            name for (name,) in db.execute("SELECT name FROM sqlite_schema")
        )
    finally:
        db.close()


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (1, 3), (0, 3)] if LONG else [(0, 3)])
def test_a_migration_that_is_killed_before_any_statement_is_all_or_nothing(
    before: int, after: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    runs = lines("killed", tmp_path, before, after, STEP)
    run, left, finished = runs[0::3], runs[1::3], runs[2::3]
    whole = finished[-1]
    assert [one["died"] for one in run] == [True] * (len(run) - 1) + [False]
    assert len(run) > 5
    assert whole[0] == after
    nothing = left[0]
    assert nothing[0] == before
    assert all(one in (nothing, whole) for one in left)
    assert left.count(nothing) > 3
    assert left.count(whole) > (1 if LONG else 0)
    assert all(one == whole for one in finished)
    record_property("counted", ("migrations killed", {"runs": len(run), "half done": 0}))


def test_a_migration_without_a_transaction_is_caught(tmp_path: Path) -> None:
    runs = lines("killed", tmp_path, 0, 3, STEP, "loosely")
    left, whole = runs[1::3], runs[-1]
    assert any(one not in (left[0], whole) for one in left)


def test_processes_that_open_a_new_file_at_once_make_one_store(tmp_path: Path) -> None:
    for opened in lines("together", tmp_path, 8, 3 if LONG else 1):
        assert opened == {"statuses": [0] * 8, "sessions": 8, "version": len(MIGRATIONS) + 2}


def test_what_was_written_under_an_older_schema_is_there_under_the_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = furnished(tmp_path / "agent.db")
    before = tables(path)
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, MORE))
    assert verified(path) == []
    assert tables(path) == before
    assert schema(path)[0] == len(MIGRATIONS) + 1
    assert "second" in schema(path)[1]


def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = furnished(tmp_path / "agent.db")
    before = schema(path), tables(path)
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, MORE, BROKEN))
    with pytest.raises(Exception, match="nowhere"):
        SqliteStore(str(path))
    assert (schema(path), tables(path)) == before


def test_an_older_turnstate_refuses_what_a_newer_one_has_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = furnished(tmp_path / "agent.db")
    with monkeypatch.context() as newer:
        newer.setattr(connection, "MIGRATIONS", (*MIGRATIONS, MORE))
        assert verified(path) == []
    before = path.read_bytes()
    with pytest.raises(NewerFormat, match="update Turnstate"):
        SqliteStore(str(path))
    assert path.read_bytes() == before


def test_a_file_that_is_up_to_date_is_opened_without_writing(tmp_path: Path) -> None:
    path = furnished(tmp_path / "agent.db")
    before = path.read_bytes()
    assert verified(path) == []
    assert path.read_bytes() == before
