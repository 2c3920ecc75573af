"""Migrations: all of one or nothing of it. `tests/faults/test_migrations.py` kills them."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.unit.stores.verification_fixtures import furnished, tables, verified
from turnstate.errors import NewerFormat
from turnstate.stores.sqlite import SqliteStore, connection
from turnstate.stores.sqlite.queries import MIGRATIONS

pytestmark = pytest.mark.req("G3", "G6")

MORE = "CREATE TABLE second (a INTEGER PRIMARY KEY, b TEXT) STRICT; INSERT INTO second VALUES (1, 'one');"
BROKEN = "CREATE TABLE third (a TEXT) STRICT; INSERT INTO nowhere VALUES (1);"


def schema(path: Path) -> tuple[int, list[str]]:
    db = apsw.Connection(str(path))
    try:
        return int(db.pragma("user_version")), sorted(
            name for (name,) in db.execute("SELECT name FROM sqlite_schema")
        )
    finally:
        db.close()


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
