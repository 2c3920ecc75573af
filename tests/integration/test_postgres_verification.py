"""A check of a PostgreSQL store finds what was changed past the store, repairs it, and destroys nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.harness.postgres_server import execute, fresh_url
from turnstate.codec import encode
from turnstate.entry import Note
from turnstate.ids import UNKNOWN_TIME
from turnstate.message import Message
from turnstate.stores.postgres import PostgresStore, connect
from turnstate.stores.postgres.rows import checksum, content_sum
from turnstate.stores.postgres.server import target
from turnstate.stores.values import Address, Change, Finding, Fork, Key, Parcel, Record, Row, SessionRow, Span

NOW = 1_750_000_000_000
LONG, SHORT = Address("acme", "long"), Address("other", "short")


def said(id: str, text: str, tokens: int = 3) -> Record:
    message = Message.user(text, id=id, timestamp=UNKNOWN_TIME)
    return Record(id=id, kind="message", body=encode(message), tokens=tokens)


def noted(id: str) -> Record:
    return Record(id=id, kind="note", body=encode(Note("n")))


def session(at: Address) -> SessionRow:
    described = {"user": "u", "title": "", "tags": ("x",), "counter": "o200k_base", "meta": {"k": [1]}}
    return SessionRow(**described, tenant=at.tenant, id=at.session, created=NOW, active=NOW)  # type: ignore[arg-type]


async def fill(store: PostgresStore) -> None:
    """Write session `long`: branch 1 of six entries, branch 2 after the 4th, branch 3 after the 5th of 2."""
    await store.create(session(LONG), [said("a1", "alpha one"), noted("n2")])
    first = (said("a3", "disk full"), said("a4", "four", 5))
    await store.commit(Change(at=LONG, now=NOW, key=Key("k", b"d"), records=first))
    await store.commit(Change(at=LONG, now=NOW, records=(said("a5", "five"), said("a6", "six", 7))))
    for fork, records in [
        (Fork(parent=1, seq=4, operation="fork"), (said("b5", "other five", 9), said("b6", "other six"))),
        (Fork(parent=2, seq=5, operation="rewind"), (said("c6", "third six", 4), noted("n7"))),
    ]:
        await store.commit(Change(at=LONG, now=NOW, fork=fork, records=records))
    waiting = Parcel(id="p", tenant=SHORT.tenant, session=SHORT.session, kind="ingest", body=b"{}", due=NOW)
    await store.create(session(SHORT), [said("s1", "short one")])
    await store.commit(Change(at=SHORT, now=NOW, records=(said("s2", "short two"),), parcels=(waiting,)))
    await store._indexer._step(0)


class Fixture:
    """A store with two sessions, and ways to look at it and to tamper with it."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self.schema, self._runner = target(url).schema, runner
        self.store = runner.run(connect(url))
        self.run(fill)

    def run(self, work: Callable[[PostgresStore], Coroutine[Any, Any, Any]]) -> Any:
        return self._runner.run(work(self.store))

    def tamper(self, *statements: str) -> None:
        execute(*(statement.replace("~", f"{self.schema}.") for statement in statements))

    def verified(self, *, repair: bool = False) -> list[Finding]:
        async def check(store: PostgresStore) -> list[Finding]:
            return [finding async for finding in store.verify(repair=repair)]

        found: list[Finding] = self.run(check)
        return found

    def rows(self, at: Address = LONG) -> dict[int, list[Row]]:
        async def read(store: PostgresStore) -> dict[int, list[Row]]:
            return {one.id: await store.read(at, Span(one.id, 1, 2**31)) for one in await store.branches(at)}

        found: dict[int, list[Row]] = self.run(read)
        return found

    def tables(self) -> list[Any]:
        names = ("session", "branch", "entry", "word", "indexed", "damaged", "key", "outbox")
        return [execute(f"SELECT * FROM {self.schema}.{name} t ORDER BY t") for name in names]

    def rewrite(self, id: str, **columns: str) -> None:
        """Change columns of an entry, and its checksum accordingly."""
        sets = ", ".join(f"{name} = {value}" for name, value in columns.items())
        self.tamper(f"UPDATE ~entry SET {sets} WHERE id = '{id}'")
        ((key, *place, tokens, kind, name, body),) = execute(
            "SELECT key, session, branch, seq, tokens, kind, id, body "
            f"FROM {self.schema}.entry WHERE id = '{id}'"
        )
        summed = checksum(*place, content_sum(tokens, kind, name, body))
        self.tamper(f"UPDATE ~entry SET checksum = {summed} WHERE key = {key}")


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    with fresh_url() as url, asyncio.Runner() as runner:
        made = Fixture(url, runner)
        yield made
        runner.run(made.store.close())


KEY_OF = "entry = (SELECT key FROM ~entry WHERE id = '{}')"
OF_LONG = "session = (SELECT key FROM ~session WHERE id = 'long')"
DAMAGE: list[tuple[str, str, str]] = [
    ("UPDATE ~entry SET body = 'x' WHERE id = 'a3'", "do not match their checksum", "a3"),
    ("UPDATE ~entry SET kind = 'prompt' WHERE id = 'a3'", "do not match their checksum", "a3"),
    ("UPDATE ~entry SET id = 'zz' WHERE id = 'b6'", "do not match their checksum", "zz"),
    ("UPDATE ~entry SET seq = 4000 WHERE id = 'a6'", "do not match their checksum", "a6"),
    ("UPDATE ~entry SET tokens = 99 WHERE id = 'a4'", "token count was changed", "a4"),
    ("UPDATE ~entry SET total = 1 WHERE id = 'a4'", "its running total is wrong", ""),
    (f"UPDATE ~word SET words = NULL WHERE {KEY_OF.format('a5')}", "search would not find it", "a5"),
    (f"DELETE FROM ~word WHERE {KEY_OF.format('a5')}", "search would not find it", "a5"),
    (
        "INSERT INTO ~word SELECT key, 'ghost' FROM ~entry WHERE id = 'n2'",
        "search would not find it",
        "n2",
    ),
    ("INSERT INTO ~word VALUES (-1, 'ghost')", "words of 1 missing entries", ""),
    ("UPDATE ~indexed SET through = 10 ^ 12", "the record of what is indexed is wrong", ""),
    ("DELETE FROM ~indexed", "the record of what is indexed is wrong", ""),
    ("DELETE FROM ~entry WHERE id = 'a3'", "entry 3 is missing", ""),
    ("DELETE FROM ~entry WHERE id IN ('a1', 'n2')", "entries 1 to 2 are missing", ""),
    ("DELETE FROM ~entry WHERE id IN ('c6', 'n7')", "entries 6 to 7 are missing", ""),
    (f"DELETE FROM ~branch WHERE id = 2 AND {OF_LONG}", "branch 2 has entries and no row", ""),
    (
        f"WITH gone AS (DELETE FROM ~entry WHERE {OF_LONG}) DELETE FROM ~branch WHERE {OF_LONG}",
        "no branch",
        "",
    ),
    (f"UPDATE ~branch SET parent = 7 WHERE id = 2 AND {OF_LONG}", "which is impossible", ""),
    (f"UPDATE ~branch SET parent = 3 WHERE id = 3 AND {OF_LONG}", "which is impossible", ""),
    (f"UPDATE ~branch SET fork_seq = 2 WHERE id = 3 AND {OF_LONG}", "which is impossible", ""),
    (f"UPDATE ~branch SET former = 9 WHERE id = 3 AND {OF_LONG}", "which does not exist", ""),
    ("UPDATE ~session SET seq = 3 WHERE id = 'long'", "its head is entry 3", ""),
    ("UPDATE ~session SET branch = 2 WHERE id = 'long'", "its head is entry 7 of branch 2", ""),
    ("UPDATE ~session SET total = 0 WHERE id = 'long'", "at 0 tokens", ""),
    ("UPDATE ~session SET counter = 'x' WHERE id = 'long'", "its counter 'x' does not exist", ""),
    ("UPDATE ~session SET meta = '[' WHERE id = 'long'", "its meta is not a JSON object", ""),
    ("UPDATE ~session SET marks = 'x' WHERE id = 'long'", "its marks for search are wrong", ""),
    ("UPDATE ~key SET last = 99", "the key 'k' was answered with entry 99", ""),
    ("DELETE FROM ~session WHERE id = 'short'", "which does not exist", ""),
    ("UPDATE ~outbox SET session = 'gone'", "a parcel waits for a session that does not exist", "p"),
]


def test_a_sound_store_is_found_sound(fixture: Fixture) -> None:
    before = fixture.tables()
    assert fixture.verified() == []
    assert fixture.verified(repair=True) == []
    assert fixture.tables() == before


@pytest.mark.req("G6")
@pytest.mark.parametrize(("statement", "fault", "id"), DAMAGE)
def test_a_change_past_the_store_is_found_and_repaired(
    fixture: Fixture, statement: str, fault: str, id: str
) -> None:
    fixture.tamper(statement)
    before = fixture.tables()
    found = fixture.verified()
    assert any(fault in finding.fault and finding.id == id for finding in found), found
    assert not any(finding.done for finding in found)
    assert fixture.tables() == before
    repaired = fixture.verified(repair=True)
    assert any(fault in finding.fault and finding.done for finding in repaired), repaired
    assert fixture.verified() == []
    for rows in fixture.rows().values():
        assert not any(row.damaged for row in rows)


@pytest.mark.req("G6")
def test_of_a_damaged_entry_the_bytes_are_kept_and_a_note_has_its_place_and_id(fixture: Fixture) -> None:
    before = fixture.rows()[1]
    fixture.tamper("UPDATE ~entry SET body = 'spoilt' WHERE id = 'a3'")
    assert [row.damaged for row in fixture.rows()[1]] == [False, False, True, False, False, False]
    fixture.verified(repair=True)
    after = fixture.rows()[1]
    assert [(row.seq, row.id, row.total) for row in after] == [(row.seq, row.id, row.total) for row in before]
    assert (after[2].kind, after[2].damaged) == ("note", False)
    kept = execute(f"SELECT id, body, fault FROM {fixture.schema}.damaged")
    assert [(row["id"], row["body"]) for row in kept] == [("a3", b"spoilt")]


@pytest.mark.req("G6")
def test_a_body_that_makes_no_sense_is_set_aside(fixture: Fixture) -> None:
    fixture.rewrite("a3", body="'{}'")
    (finding,) = fixture.verified(repair=True)
    assert (finding.id, finding.seq, finding.branch) == ("a3", 3, 1)
    assert "cannot be decoded" in finding.fault
    assert fixture.verified() == []


@pytest.mark.req("G6")
def test_an_entry_of_a_newer_kind_is_reported_and_left(fixture: Fixture) -> None:
    fixture.rewrite("n2", kind="'prophecy'")
    before = fixture.tables()
    (finding,) = fixture.verified(repair=True)
    assert ("newer" in finding.fault, finding.done) == (True, "")
    assert fixture.tables() == before


@pytest.mark.req("G4", "G6")
def test_damage_in_one_session_leaves_the_others_alone(fixture: Fixture) -> None:
    before = fixture.rows(SHORT)
    fixture.tamper(
        f"UPDATE ~entry SET body = 'x', total = 0 WHERE {OF_LONG}", f"DELETE FROM ~branch WHERE {OF_LONG}"
    )
    fixture.verified(repair=True)
    assert fixture.verified() == []
    assert fixture.rows(SHORT) == before


@pytest.mark.req("G6")
def test_a_repaired_session_can_be_continued(fixture: Fixture) -> None:
    fixture.tamper(
        "UPDATE ~session SET seq = 2, total = 1 WHERE id = 'long'", "DELETE FROM ~entry WHERE id = 'b5'"
    )
    fixture.verified(repair=True)

    async def goes_on(store: PostgresStore) -> int:
        receipt = await store.commit(Change(at=LONG, now=NOW, records=(said("d8", "eight"),)))
        return receipt.last

    assert fixture.run(goes_on) == 8
    assert fixture.verified() == []


@pytest.mark.req("G6")
def test_a_long_branch_is_walked_to_its_end(fixture: Fixture) -> None:
    async def grow(store: PostgresStore) -> None:
        for start in range(0, 1_200, 300):
            records = tuple(said(f"x{n}", f"word{n}") for n in range(start, start + 300))
            await store.commit(Change(at=SHORT, now=NOW, records=records))

    fixture.run(grow)
    assert fixture.verified() == []
    fixture.tamper("UPDATE ~entry SET body = 'x' WHERE id IN ('x10', 'x999', 'x1199')")
    assert [finding.id for finding in fixture.verified(repair=True)] == ["x10", "x999", "x1199"]
    assert fixture.verified() == []


@pytest.mark.req("G3")
def test_a_check_beside_writers_finds_nothing(fixture: Fixture) -> None:
    async def check(store: PostgresStore) -> list[Finding]:
        async def write() -> None:
            for n in range(60):
                fork = Fork(parent=1, seq=1, operation="fork") if n % 7 == 0 else None
                await store.commit(Change(at=SHORT, now=NOW, fork=fork, records=(said(f"y{n}", f"w{n}"),)))
                await store.create(session(Address("acme", f"s{n}")), [said("a", "b")])
                if n % 3 == 0:
                    await store.remove(Address("acme", f"s{n}"))

        writing = asyncio.create_task(write())
        found = list[Finding]()
        while not writing.done():
            found += [finding async for finding in store.verify(repair=True)]
        await writing
        return found

    assert fixture.run(check) == []
