"""Reading a session's log: messages and entries of any branch, after any entry, as many as wanted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, answer, answers, asks, call, run, say
from turnstate import Message, Session
from turnstate.entry import Prompt
from turnstate.errors import InputError, NotFound
from turnstate.session import SessionManager
from turnstate.stores.memory import MemoryStore
from turnstate.stores.values import Address, Row, Span

ON_DISK = True


class CountingStore(MemoryStore):
    """Counts the rows that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    async def read(self, at: Address, span: Span, **which: Any) -> list[Row]:
        found = await super().read(at, span, **which)
        self.rows += len(found)
        return found


async def branched(harness: Harness) -> Session:
    """Return a session with the branches a b c and a b d, the latter with the head."""
    session = await (await harness.manager()).create(id="s1", system="You help.")
    await say(session, "a", "b", "c")
    await session.rewind(to="b")
    await say(session, "d")
    return session


async def ids(session: Session, **which: Any) -> list[str]:
    return [message.id for message in await session.messages(**which)]


@run
async def test_messages_of_any_branch_are_read_after_any_entry(harness: Harness) -> None:
    session = await branched(harness)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["a", "b", "d"]),
        ({"branch": 1}, ["a", "b", "c"]),
        ({"branch": 2}, ["a", "b", "d"]),
        ({"after": "a"}, ["b", "d"]),
        ({"branch": 1, "after": "b"}, ["c"]),
        ({"after": "d"}, []),
        ({"limit": 2}, ["a", "b"]),
        ({"limit": 0}, []),
        ({"after": "a", "limit": 1}, ["b"]),
        ({"branch": 1, "last": 2}, ["b", "c"]),
        ({"after": "a", "last": 5}, ["b", "d"]),
    ]
    for which, expected in cases:
        assert await ids(session, **which) == expected, which


@run
async def test_pages_of_messages_cover_the_path_once_however_long_they_are(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    for turn in range(4):
        request = call(path=str(turn))
        await session.append(Message.user("go"), asks(request), answers(answer(request)))
        await session.set_system(f"prompt {turn}")
    await session.append(Message.user("more"), asks(call(), call()))
    await session._handle.answer_interrupted_calls()
    everything = await session.messages()
    for limit in (1, 2, 5, 100):
        read, after = list[Message](), None
        while page := await session.messages(after=after, limit=limit):
            assert len(page) <= limit
            read, after = read + page, page[-1].id
        assert read == everything


@run
async def test_entries_have_their_place_kind_and_time(harness: Harness) -> None:
    before = datetime.now(UTC)
    session = await branched(harness)
    found = await session.entries()
    assert [(one.branch, one.seq, one.kind) for one in found] == [
        (1, 1, "prompt"),
        (1, 2, "message"),
        (1, 3, "message"),
        (2, 4, "message"),
    ]
    assert found[0].entry == Prompt("You help.")
    assert [one.entry for one in found[1:]] == await session.messages()
    for one in found:
        assert one.session == "s1"
        assert one.time is not None
        assert one.time.tzinfo is UTC
        assert abs(one.time - before).total_seconds() < 60
    assert [one.id for one in await session.entries(branch=1, after="b")] == ["c"]
    assert [one.id for one in await session.entries(after=found[0].cursor, limit=1)] == ["a"]


@run
async def test_a_time_that_nobody_knows_is_none(harness: Harness) -> None:
    session = await (await harness.manager()).create()
    old = Message.user("old", id="old", timestamp="2001-02-03T04:05:06.789Z")
    await session.append(old, Message.user("x", id="x", timestamp="1970-01-01T00:00:00Z"))
    assert [one.time for one in await session.entries()] == [
        datetime(2001, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC),
        None,
    ]


@run
async def test_entries_of_some_kinds_are_read_in_the_order_of_the_path(harness: Harness) -> None:
    session = await branched(harness)
    await session.set_system("Anew.")
    cases = [(["prompt"], [1, 5]), (["message"], [2, 3, 4]), (["prompt", "message"], [1, 2, 3, 4, 5])]
    for kinds, seqs in [*cases, (["cut"], []), ([], [])]:
        assert [one.seq for one in await session.entries(kinds=kinds)] == seqs, kinds
    assert [one.seq for one in await session.entries(kinds=["prompt"], after="a", limit=5)] == [5]


@run
async def test_what_is_not_on_the_path_is_not_found_and_wrong_arguments_say_what_to_pass(
    harness: Harness,
) -> None:
    session = await branched(harness)
    for which, text in [
        ({"branch": 3}, "has no branch 3"),
        ({"after": "nobody"}, "has no entry nobody"),
        ({"after": "c"}, r"another branch \(1\)"),
        ({"branch": 1, "after": "d"}, r"another branch \(2\)"),
    ]:
        for read in (session.messages, session.entries):
            with pytest.raises(NotFound, match=text):
                await read(**which)  # type: ignore[operator]
    wrong: list[dict[str, Any]] = [{"branch": "main"}, {"branch": 0}, {"after": 5}, {"limit": -1}]
    for which in wrong:
        for read in (session.messages, session.entries):
            with pytest.raises(InputError, match=next(iter(which))):
                await read(**which)  # type: ignore[operator]
    with pytest.raises(InputError, match="not both"):
        await session.messages(limit=1, last=1)
    with pytest.raises(InputError, match="a sequence of kinds"):
        await session.entries(kinds="message")


@run
async def test_a_few_messages_take_a_few_rows(harness: Harness) -> None:
    store = CountingStore()
    session = await SessionManager(store, clock=harness.clock).create()
    await session.append(*(Message.user(str(number)) for number in range(500)))
    for which in ({"last": 5}, {"limit": 5}, {"after": (await session.messages())[250].id, "limit": 5}):
        store.rows = 0
        assert len(await session.messages(**which)) == 5  # type: ignore[arg-type]
        assert store.rows == 5, which
