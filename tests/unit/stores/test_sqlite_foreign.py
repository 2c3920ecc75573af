"""What Turnstate did not make has no place in its database: it is named, and never runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.unit.stores.verification_fixtures import LONG, NOW, furnish, run, said, tamper, verified
from turnstate.errors import StoreDamaged
from turnstate.stores.sqlite import SqliteStore, rescue
from turnstate.stores.values import Change

SPY = "CREATE TRIGGER spy AFTER INSERT ON entry BEGIN UPDATE session SET title = 'stolen'; END"

FOREIGN = {
    "trigger `spy`": SPY,
    "trigger `late`": "CREATE TRIGGER late BEFORE DELETE ON session BEGIN SELECT raise(IGNORE); END",
    "view `look`": "CREATE VIEW look AS SELECT body FROM entry",
    "table `copies`": "CREATE TABLE copies (body)",
    "table `found`": "CREATE VIRTUAL TABLE found USING fts5 (body)",
    "index `odd`": "CREATE INDEX odd ON entry (abs(tokens))",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run(tmp_path / "agent.db", furnish)
    return tmp_path / "agent.db"


@pytest.mark.parametrize("name", FOREIGN)
def test_a_store_with_something_foreign_is_refused_by_name(path: Path, name: str) -> None:
    tamper(path, FOREIGN[name])
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match=f"the {name}.*did not make"):
        SqliteStore(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", FOREIGN)
def test_verify_finds_what_was_put_in_while_the_store_is_open(path: Path, name: str) -> None:
    async def look(store: SqliteStore) -> list[str]:
        tamper(path, FOREIGN[name])
        return [finding.fault async for finding in store.verify(repair=False)]

    assert any(f"the {name} does not belong to Turnstate" in fault for fault in run(path, look))


def test_a_trigger_that_is_put_in_while_the_store_is_open_does_not_run(path: Path) -> None:
    async def write(store: SqliteStore) -> str:
        tamper(path, SPY)
        await store.commit(Change(at=LONG, now=NOW, records=(said("z", "zzz"),)))
        return (await store.get(LONG)).title

    assert run(path, write) == ""


def test_statistics_of_sqlite_are_not_foreign(path: Path) -> None:
    tamper(path, "ANALYZE")
    assert verified(path) == []


def test_a_repair_makes_a_copy_without_what_is_foreign(path: Path) -> None:
    tamper(path, SPY)

    async def save() -> None:
        assert [finding async for finding in rescue(str(path))]

    asyncio.run(save())
    copy = path.with_name("agent.db.salvaged")
    db = apsw.Connection(str(copy))
    assert list(db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")) == []
    db.close()
    assert run(copy, lambda store: store.get(LONG)).seq == 7
