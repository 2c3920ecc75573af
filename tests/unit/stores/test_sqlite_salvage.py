"""Where pages of a file are damaged, the rest is served, and everything readable can be salvaged."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from tests.harness.thoroughness import LONG as THOROUGH
from tests.harness.thoroughness import rng
from tests.unit.stores.verification_fixtures import (
    END,
    LONG,
    MANY,
    NOW,
    SHORT,
    everything,
    furnish_and_index,
    run,
    said,
    tables,
    verified,
)
from turnstate.errors import StoreDamaged
from turnstate.stores.sqlite import SqliteStore, rescue
from turnstate.stores.values import Change, Finding, Fork, Span

pytestmark = pytest.mark.req("G5", "G6")

SIZE = 4096


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "agent.db"
    run(path, furnish_and_index)
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "agent.db"
    copy.write_bytes(template.read_bytes())
    return copy


def pages_of(path: Path, name: str) -> list[tuple[int, str]]:
    """Return the pages of a table or index, each with what it is."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute("SELECT pageno, pagetype FROM dbstat WHERE name = ? ORDER BY path", (name,)))
    finally:
        db.close()


def blank(path: Path, *pages: int) -> bytes:
    """Write zeros over pages, numbered from 1."""
    data = bytearray(path.read_bytes())
    for page in pages:
        data[(page - 1) * SIZE : page * SIZE] = bytes(SIZE)
    path.write_bytes(data)
    return bytes(data)


def blank_leaf(path: Path, name: str, which: int = 0) -> bytes:
    leaves = [page for page, kind in pages_of(path, name) if kind == "leaf"]
    return blank(path, leaves[which])


def salvaged(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged")


def test_entries_around_a_damaged_page_are_served(path: Path) -> None:
    whole = run(path, everything)
    blank_leaf(path, "entry", 5)
    served = run(path, everything)
    damaged = {place for place, row in served.items() if row.damaged}
    assert served.keys() == whole.keys()
    assert 0 < len(damaged) < 20
    assert {at for at, _, _ in damaged} == {MANY}
    assert all(served[place] == whole[place] for place in whole.keys() - damaged)


def test_a_limit_holds_among_damaged_entries_too(path: Path) -> None:
    blank_leaf(path, "entry", 5)

    async def read(store: SqliteStore) -> None:
        rows = await store.read(MANY, Span(1, 1, END))
        first = next(row.seq for row in rows if row.damaged)
        span = Span(1, first - 2, first + 2)
        assert await store.read(MANY, span, limit=4) == rows[first - 3 : first + 1]
        assert await store.read(MANY, span, limit=4, newest=True) == rows[first - 2 : first + 2]

    run(path, read)


def test_the_newest_entry_of_a_kind_is_never_replaced_by_an_older_one(path: Path) -> None:
    blank_leaf(path, "entry", -1)

    async def read(store: SqliteStore) -> None:
        found = await store.newest(MANY, [Span(1, 1, END)], ["note", "message"])
        assert (found["note"].seq, found["note"].damaged) == (240, True)

    run(path, read)


def test_entries_are_served_without_their_index(path: Path) -> None:
    whole = run(path, everything)
    blank(path, *(page for page, _ in pages_of(path, "sqlite_autoindex_entry_1")))
    found = run(path, everything)
    assert all(row.recovered for row in found.values())
    assert {place: structs.replace(row, recovered=False) for place, row in found.items()} == whole
    assert verified(path) != []


def test_one_session_can_be_written_to_while_another_meets_a_damaged_page(path: Path) -> None:
    blank_leaf(path, "entry", 5)

    async def write(store: SqliteStore) -> None:
        rows = await store.read(MANY, Span(1, 1, END))
        lost = next(row.seq for row in rows if row.damaged)
        forks = [
            store.commit(Change(at=MANY, now=NOW, fork=Fork(parent=1, seq=lost, operation="fork")))
            for _ in range(3)
        ]
        appends = [
            store.commit(Change(at=SHORT, now=NOW, records=(said(f"w{n}", "still"),))) for n in range(3)
        ]
        pairs = [one for pair in zip(forks, appends, strict=True) for one in pair]
        outcomes = await asyncio.gather(*pairs, return_exceptions=True)
        assert all(isinstance(outcome, StoreDamaged) for outcome in outcomes[::2])
        assert [outcome.last for outcome in outcomes[1::2] if not isinstance(outcome, BaseException)] == [
            *(3, 4, 5)
        ]

    run(path, write)


def test_a_check_counts_what_cannot_be_read_of_each_session(path: Path) -> None:
    blank_leaf(path, "entry", 5)
    lost = sum(row.damaged for row in run(path, everything).values())
    about = [finding for finding in verified(path) if finding.session]
    assert [(finding.session, finding.branch) for finding in about] == [("many", 1)]
    assert about[0].fault.startswith(f"{lost} entries cannot be read")
    assert not salvaged(path).exists()


def test_a_check_reports_a_session_that_a_scan_lists_and_a_search_does_not_find(path: Path) -> None:
    ((page, _),) = pages_of(path, "session")
    data = bytearray(path.read_bytes())
    start = (page - 1) * SIZE
    cell = start + int.from_bytes(
        data[start + 8 : start + 10], "big"
    )  # the first cell: its size, then its number
    while data[cell] & 0x80:
        cell += 1
    assert data[cell + 1] == 1
    data[cell + 1] = 99
    path.write_bytes(data)
    assert "session number 99 is listed and cannot be found" in [finding.fault for finding in verified(path)]


def test_the_damaged_file_is_not_touched_and_the_copy_is_sound(path: Path) -> None:
    os.chmod(path, 0o640)
    whole, data = run(path, everything), blank_leaf(path, "entry", 5)
    before = run(path, everything)
    found = verified(path, repair=True)
    assert path.read_bytes() == data
    assert any(str(salvaged(path)) in finding.done for finding in found)
    assert salvaged(path).stat().st_mode & 0o777 == 0o640
    assert verified(salvaged(path), repair=True) == []
    copied = run(salvaged(path), everything)
    lost = {place for place, row in before.items() if row.damaged}
    assert copied.keys() == whole.keys()
    assert {place for place, row in copied.items() if row != whole[place]} == lost
    assert {copied[place].kind for place in lost} == {"note"}
    assert all(row.total == whole[place].total for place, row in copied.items() if place not in lost)
    assert not list(path.parent.glob("*.part*"))


def test_the_copy_can_take_the_place_of_the_damaged_file(path: Path) -> None:
    blank_leaf(path, "entry", 5)
    verified(path, repair=True)
    salvaged(path).rename(path)

    async def go_on(store: SqliteStore) -> int:
        before = await store.get(MANY)
        receipt = await store.commit(Change(at=MANY, now=NOW, records=(said("z", "zebra"),)))
        hits = await store.search("acme", ["zebra"], user="u", before=None, limit=9)
        assert [hit.row.id for hit in hits] == ["z"]
        hits = await store.search("acme", ["lorem", "39"], user="u", before=None, limit=9)
        assert {hit.session for hit in hits} == {"many"}
        return receipt.last - before.seq

    assert run(path, go_on) == 1


def test_an_earlier_copy_is_not_overwritten(path: Path) -> None:
    salvaged(path).write_bytes(b"precious")
    blank_leaf(path, "entry", 5)
    assert "already exists" in verified(path, repair=True)[-1].done
    assert salvaged(path).read_bytes() == b"precious"


def test_an_interrupted_salvage_is_started_again(path: Path) -> None:
    path.with_name("agent.db.salvaged.part").write_bytes(b"half")
    blank_leaf(path, "entry", 5)
    verified(path, repair=True)
    assert verified(salvaged(path)) == []
    assert not path.with_name("agent.db.salvaged.part").exists()


def test_sessions_whose_rows_are_lost_are_known_to_an_index(path: Path) -> None:
    whole = run(path, everything)
    blank_leaf(path, "session")
    verified(path, repair=True)
    assert run(salvaged(path), everything) == whole

    async def look(store: SqliteStore) -> list[object]:
        row = await store.get(LONG)
        return [row.user, row.tags, row.head, row.total, row.counter]

    assert run(salvaged(path), look) == ["u", ("x", "y"), (3, 7), 24, "o200k_base"]


def test_branches_whose_rows_are_lost_are_restored_from_their_entries(path: Path) -> None:
    whole = run(path, everything)
    blank_leaf(path, "branch")
    verified(path, repair=True)
    assert run(salvaged(path), everything) == whole

    async def look(store: SqliteStore) -> list[tuple[int, int | None, int]]:
        return [(one.id, one.parent, one.fork_seq) for one in await store.branches(LONG)]

    assert run(salvaged(path), look) == [(1, None, 0), (2, 1, 4), (3, 2, 5)]


@pytest.mark.req("G9")
def test_what_was_erased_is_not_salvaged(path: Path) -> None:
    async def remove(store: SqliteStore) -> None:
        await store.remove(MANY)

    run(path, remove)
    blank_leaf(path, "session")
    verified(path, repair=True)
    assert {at for at, _, _ in run(salvaged(path), everything)} == {LONG, SHORT}
    assert b"lorem" not in salvaged(path).read_bytes()


def test_whichever_page_is_lost_nothing_false_is_served_and_it_is_reported(
    path: Path, record_property: Callable[[str, object], None]
) -> None:
    whole, data, counts = run(path, everything), path.read_bytes(), Counter[str]()
    pages = range(1, len(data) // SIZE + 1)
    for page in pages if THOROUGH else [1, *sorted(rng("pages").sample(pages[1:], 8))]:
        path.write_bytes(data)
        salvaged(path).unlink(missing_ok=True)
        damaged = blank(path, page)
        try:
            found = verified(path, repair=True)
        except StoreDamaged:  # it has the schema or the header
            counts["refused"] += 1
            assert not salvaged(path).exists()
            continue
        finally:
            for left in ("-wal", "-shm"):
                path.with_name(path.name + left).unlink(missing_ok=True)
        assert found != []
        assert path.read_bytes() == damaged
        copied = run(salvaged(path), everything)
        assert verified(salvaged(path)) == []
        kept = {place for place, row in copied.items() if whole.get(place) == row}
        notes = {place for place, row in copied.items() if row.kind == "note"}
        assert copied.keys() - kept <= notes
        assert {at for at, _, _ in copied} == {LONG, SHORT, MANY}
        counts["salvaged whole" if kept == whole.keys() else "salvaged in part"] += 1
        counts["entries lost"] += len(whole.keys() - kept)
    assert 0 < counts["refused"] < 8, counts
    record_property("counted", ("pages lost", dict(counts)))


def test_a_file_that_was_cut_off_is_salvaged_as_far_as_it_goes(path: Path) -> None:
    whole, data = run(path, everything), path.read_bytes()
    rest = data[: len(data) // SIZE * 3 // 4 * SIZE]
    path.write_bytes(rest)
    with pytest.raises(StoreDamaged, match="damaged"):
        SqliteStore(str(path))
    assert str(salvaged(path)) in asyncio.run(rescued(path))[0].done
    assert path.read_bytes() == rest
    copied = run(salvaged(path), everything)
    assert 50 < sum(whole.get(place) == row for place, row in copied.items()) < len(whole)
    assert verified(salvaged(path)) == []


def test_a_file_with_a_broken_schema_is_salvaged_but_for_the_broken_table(path: Path) -> None:
    whole, data = run(path, everything), path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE branch (", b"CREATE TABLE branch )", 1))
    with pytest.raises(StoreDamaged, match="damaged"):
        SqliteStore(str(path))
    asyncio.run(rescued(path))
    assert run(salvaged(path), everything) == whole
    assert verified(salvaged(path)) == []


@pytest.mark.parametrize("content", [b"", b"hello\n" * 900, bytes(9_000)])
def test_what_is_no_database_is_not_salvaged(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        asyncio.run(rescued(path))
    assert [one.name for one in tmp_path.iterdir()] == ["agent.db"]
    assert path.read_bytes() == content


async def rescued(path: Path) -> list[Finding]:
    return [finding async for finding in rescue(str(path))]


def test_nothing_of_the_tables_is_lost_where_only_an_index_is(path: Path) -> None:
    before = tables(path)
    blank(path, *(page for page, _ in pages_of(path, "entry_by_kind")))
    verified(path, repair=True)
    assert tables(salvaged(path)) == before


COLUMNS = ("session", "branch", "seq", "id", "kind", "body", "tokens", "total", "checksum")


def set_in_damaged_row(path: Path, column: str, value: str) -> None:
    """Set a column of an entry to what its table does not allow, as a damaged header of the row does."""
    db = apsw.Connection(str(path))
    ((schema,),) = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'entry'")
    loose = schema.replace(" NOT NULL", "").replace(") STRICT", ")")
    for definition, change in ((loose, f"UPDATE entry SET {column} = {value} WHERE key = 3"), (schema, "")):
        db.pragma("writable_schema", "ON")
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'entry'", (definition,))
        db.pragma("writable_schema", "RESET")
        db.execute(change)
    db.close()


@pytest.mark.parametrize("value", ["NULL", "1.5"])
@pytest.mark.parametrize("column", COLUMNS)
def test_an_entry_whose_column_has_another_type_is_set_aside_and_the_rest_is_salvaged(
    column: str, value: str, template: Path, path: Path
) -> None:
    whole = run(template, everything)
    set_in_damaged_row(path, column, value)
    assert verified(path)
    verified(path, repair=True)
    sound = salvaged(path) if salvaged(path).exists() else path
    assert verified(sound) == []
    rows = run(sound, everything)
    assert [at for at, row in whole.items() if rows.get(at) != row] == [(LONG, 1, 3)]
