"""A check of a file finds what is wrong with it, mends what can be mended, and destroys nothing."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.stores.verification_faults import CHANGED_BODY, EXACT, MENDED
from tests.unit.stores.verification_fixtures import (
    LONG,
    NOW,
    SHORT,
    furnished,
    index,
    rewrite,
    rows,
    run,
    said,
    session,
    tables,
    tamper,
    verified,
)
from turnstate.codec import decode_entry
from turnstate.context.policy import Budget
from turnstate.entry import Note
from turnstate.errors import StoreDamaged
from turnstate.message import Message, ToolCallRequest, ToolCallResult
from turnstate.session.manager import SessionManager
from turnstate.stores.sqlite import SqliteStore
from turnstate.stores.sqlite.verify import SESSIONS_AT_ONCE
from turnstate.stores.values import Address, Change, Finding
from turnstate.stores.verify.entries import PAGE

pytestmark = pytest.mark.req("G5", "G6")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return furnished(tmp_path / "agent.db")


def faults(findings: list[Finding]) -> list[str]:
    return [finding.fault for finding in findings]


def test_a_sound_file_is_found_sound_and_left_as_it_is(path: Path) -> None:
    before = tables(path)
    assert verified(path) == verified(path, repair=True) == []
    assert tables(path) == before


@pytest.mark.parametrize("what", [*EXACT, *MENDED])
def test_what_is_wrong_is_found_and_nothing_is_changed_by_looking(what: str, path: Path) -> None:
    statement, fault = (EXACT | MENDED)[what]
    tamper(path, statement)
    before = tables(path)
    found = verified(path)
    assert any(one.startswith(fault) for one in faults(found))
    assert not any(finding.done for finding in found)
    assert tables(path) == before


@pytest.mark.parametrize("what", [*EXACT, *MENDED])
def test_what_is_repaired_is_not_found_again(what: str, path: Path) -> None:
    statement, fault = (EXACT | MENDED)[what]
    tamper(path, statement)
    found = verified(path, repair=True)
    assert any(one.startswith(fault) for one in faults(found))
    assert all(finding.done for finding in found)
    after = tables(path)
    assert verified(path) == verified(path, repair=True) == []
    assert tables(path) == after


@pytest.mark.parametrize("what", EXACT)
def test_what_can_be_worked_out_is_as_it_was(what: str, path: Path) -> None:
    before = tables(path)
    tamper(path, EXACT[what][0])
    assert tables(path) != before
    verified(path, repair=True)
    assert tables(path) == before


def test_a_finding_names_the_place(path: Path) -> None:
    tamper(path, CHANGED_BODY)
    (found,) = verified(path)
    assert (found.tenant, found.session, found.branch, found.seq, found.id) == ("acme", "long", 1, 4, "a4")


def test_the_bytes_of_a_damaged_entry_are_kept(path: Path) -> None:
    tamper(path, CHANGED_BODY)
    verified(path, repair=True)
    db = apsw.Connection(str(path))
    (kept,) = db.execute("SELECT session, branch, seq, id, kind, body, fault FROM damaged")
    db.close()
    assert kept[:5] == (1, 1, 4, "a4", "message")
    assert b'"fire"' in kept[5]
    assert kept[6] == "its bytes do not match their checksum"


def test_a_note_takes_the_place_the_id_and_the_tokens_of_what_was_damaged(path: Path) -> None:
    before = rows(path)
    tamper(path, CHANGED_BODY)
    verified(path, repair=True)
    after = rows(path)
    note = after[1].pop(3)
    was = before[1].pop(3)
    assert after == before
    assert (note.seq, note.id, note.tokens, note.total) == (was.seq, was.id, was.tokens, was.total)
    assert isinstance(decode_entry(note.kind, note.body), Note)
    assert not note.damaged


def test_a_damaged_entry_is_no_longer_found_by_its_words(path: Path) -> None:
    tamper(path, CHANGED_BODY)
    verified(path, repair=True)

    async def search(store: SqliteStore) -> list[str]:
        hits = await store.search(LONG.tenant, ["four"], user=None, before=None, limit=9)
        return [hit.row.id for hit in hits]

    assert run(path, search) == []


def test_missing_entries_become_notes_and_later_totals_are_right(path: Path) -> None:
    before = rows(path)
    tamper(path, "DELETE FROM entry WHERE session = 1 AND branch = 1 AND seq IN (3, 4)")
    verified(path, repair=True)
    after = rows(path)
    assert (
        [(row.seq, row.kind, row.total) for row in after[1]]
        == [
            *((row.seq, row.kind, row.total) for row in before[1][:2]),
            (3, "note", before[1][3].total),  # the first note takes the tokens of both
            (4, "note", before[1][3].total),
            *((row.seq, row.kind, row.total) for row in before[1][4:]),
        ]
    )
    assert {branch: rows[-1] for branch, rows in after.items()} == {
        branch: rows[-1] for branch, rows in before.items()
    }


def test_an_entry_whose_body_makes_no_sense_is_set_aside(path: Path) -> None:
    rewrite(path, "a4", body=b'{"role":"nobody"}')
    (found,) = verified(path, repair=True)
    assert found.fault.startswith("its body cannot be decoded")
    assert verified(path) == []


def test_an_entry_of_a_newer_version_is_named_and_left_as_it_is(path: Path) -> None:
    rewrite(path, "n2", kind="hologram")
    before = tables(path)
    (found,) = verified(path, repair=True)
    assert "hologram" in found.fault
    assert (found.seq, found.done) == (2, "")
    assert tables(path) == before


def test_what_hangs_on_no_session_is_kept(path: Path) -> None:
    before = tables(path)
    tamper(path, "DELETE FROM session WHERE key = 2")
    verified(path, repair=True)
    db = apsw.Connection(str(path))
    kept = list(db.execute("SELECT session, kind, id FROM damaged ORDER BY kind, id"))
    db.close()
    assert kept == [
        *[(0, "branch", ""), (0, "message", "s1"), (0, "message", "s2"), (0, "parcel", "p")],
        *[(0, "tag", "x"), (0, "tag", "y")],
    ]
    after = tables(path)
    assert [row for row in before["entry"] if row in after["entry"]] == after["entry"]


def test_more_sessions_than_one_look_takes_are_all_looked_at(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        for number in range(2 * SESSIONS_AT_ONCE):
            await store.create(session(Address("acme", f"s{number}")), [said("m", f"text {number}")])

    run(path, fill)
    assert verified(path) == []
    tamper(path, "UPDATE session SET seq = 5 WHERE id IN ('s0', 's23', 's24', 's47')")
    assert {one.session for one in verified(path)} == {"s0", "s23", "s24", "s47"}


def test_a_branch_of_many_pages_is_walked_to_its_end(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        many = tuple(said(f"m{number}", f"text {number}") for number in range(2 * PAGE + 3))
        await store.commit(Change(at=SHORT, now=NOW, records=many))

    run(path, fill)
    assert verified(path) == []
    edges = (PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, 2 * PAGE + 5)
    tamper(path, f"UPDATE entry SET body = x'00' WHERE session = 2 AND seq IN {edges}")
    assert [one.seq for one in verified(path)] == list(edges)
    verified(path, repair=True)
    assert verified(path) == []


def test_totals_that_are_wrong_over_many_pages_are_repaired_at_once(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        many = tuple(said(f"m{number}", "text") for number in range(2 * PAGE))
        await store.commit(Change(at=SHORT, now=NOW, records=many))
        await index(store)

    run(path, fill)
    before = tables(path)
    tamper(path, "UPDATE entry SET total = total - 1 WHERE session = 2 AND seq > 5")
    verified(path, repair=True)
    assert tables(path) == before


def test_others_write_while_a_file_is_checked_and_repaired(path: Path) -> None:
    tamper(path, CHANGED_BODY, "UPDATE entry SET total = 1 WHERE id = 's1'")

    async def both(store: SqliteStore) -> list[Finding]:
        async def write() -> None:
            for number in range(60):
                await store.commit(Change(at=SHORT, now=NOW, records=(said(f"w{number}", "while"),)))
                await store.create(session(Address("acme", f"n{number}")), [said("m", "new")])
                await store.remove(Address("acme", f"n{number}"))

        writing, found = asyncio.create_task(write()), list[Finding]()
        while not writing.done():
            found += [finding async for finding in store.verify(repair=True)]
        await writing
        return found

    assert sorted(faults(run(path, both))) == [
        "its bytes do not match their checksum",
        "its running total is wrong",
    ]
    assert verified(path) == []


def test_a_session_that_is_removed_meanwhile_is_no_fault(path: Path) -> None:
    tamper(path, CHANGED_BODY, "UPDATE session SET seq = 1 WHERE key = 1")

    async def remove_after_the_first(store: SqliteStore) -> list[Finding]:
        found = list[Finding]()
        async for finding in store.verify(repair=True):
            if not found:
                await store.remove(LONG)
            found.append(finding)
        return found

    (only,) = run(path, remove_after_the_first)
    assert only.fault == "its bytes do not match their checksum"
    assert verified(path) == []


def test_a_check_that_is_abandoned_closes_the_file(path: Path) -> None:
    tamper(path, CHANGED_BODY)

    async def break_off(store: SqliteStore) -> None:
        checking = store.verify(repair=False)
        assert (await anext(aiter(checking))).id == "a4"
        await checking.aclose()  # type: ignore[attr-defined]

    run(path, break_off)
    path.with_name("agent.db").rename(path.with_name("moved.db"))
    assert len(verified(path.with_name("moved.db"))) == 1


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    path, size, count = tmp_path / "agent.db", 1_000_000, 40

    async def fill(store: SqliteStore) -> None:
        await store.create(session(LONG))
        for number in range(count):
            await store.commit(Change(at=LONG, now=NOW, records=(said(f"m{number}", "x" * size),)))

    run(path, fill)
    tamper(path, "UPDATE entry SET tokens = 99 WHERE id = 'm7'")
    tracemalloc.start()
    try:
        (found,) = verified(path, repair=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.id == "m7"
    assert peak < 12 * size < count * size


def test_a_session_goes_on_after_one_of_its_messages_was_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    call = ToolCallRequest(name="look", args={"at": "sky"})

    async def talk() -> str:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            one = await sessions.create()
            await one.append(Message.user("what is up?"))
            await one.append(Message.assistant(tool_calls=[call]))
            await one.append(Message.tool([ToolCallResult(tool_call_id=call.id, result="blue")]))
            await one.append(Message.assistant("it is blue"))
            return one.id

    id = asyncio.run(talk())
    tamper(path, "UPDATE entry SET body = CAST(replace(body, 'sky', 'sea') AS BLOB)")

    async def look() -> tuple[list[str], tuple[str, ...], list[Any]]:
        async with await SessionManager.open(f"sqlite:///{path}") as sessions:
            one = await sessions.open(id)
            window = await one.window(Budget(8_000))
            await one.append(Message.user("thanks"))
            return [message.role for message in window.messages], one.notices, list(await one.messages())

    damaged, notices, _ = asyncio.run(look())
    assert any("damaged" in notice for notice in notices)
    (found,) = verified(path, repair=True)
    mended, notices, messages = asyncio.run(look())
    assert found.seq == 2
    assert notices == ()
    assert damaged == mended[: len(damaged)]
    assert [message.content for message in messages if message.role == "user"] == [
        *("what is up?", "thanks", "thanks")
    ]


def test_erasing_a_session_erases_what_was_set_aside_of_it(path: Path) -> None:
    tamper(path, CHANGED_BODY)
    verified(path, repair=True)

    async def erase(store: SqliteStore) -> None:
        await store.remove(LONG)
        await store.scrub()

    run(path, erase)
    assert tables(path)["damaged"] == []
    assert b"fire" not in path.read_bytes()


@pytest.mark.req("G4")
def test_a_damaged_index_does_not_lead_to_the_session_of_another_tenant(path: Path) -> None:
    db = apsw.Connection(str(path))
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_session_1'")
    db.close()
    data, named = bytearray(path.read_bytes()), b"othershort"
    place = data.index(named, (root - 1) * 4096) + len(named)
    assert data[place] == 2  # the number of the session
    data[place] = 1
    path.write_bytes(data)

    async def read(store: SqliteStore) -> None:
        with pytest.raises(StoreDamaged, match="session short cannot be read"):
            await store.get(SHORT)
        assert (await store.get(LONG)).id == "long"

    run(path, read)
    assert verified(path) != []
