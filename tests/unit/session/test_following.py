"""Following sessions: every entry once and in order, from any place, while others write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.session.session_fixtures import Harness, run, say
from turnstate import LogEntry, Message
from turnstate.errors import InputError, NotFound

ON_DISK = True


async def first(count: int, found: AsyncIterator[LogEntry]) -> list[LogEntry]:
    """Return the first entries of what never ends."""
    read = list[LogEntry]()
    async for entry in found:
        read.append(entry)
        if len(read) == count:
            break
    await found.aclose()  # type: ignore[attr-defined]
    return read


@run
async def test_a_session_is_followed_over_branches_and_resets_by_another_process(harness: Harness) -> None:
    session = await (await harness.manager()).create(id="s1", system="You help.")
    other = await (await harness.manager()).open("s1")
    following = asyncio.create_task(first(7, other.follow(every=0.001)))
    await say(session, "a", "b")
    await session.rewind(to="a")
    await say(session, "c")
    await session.undo()
    await asyncio.sleep(0.01)
    await say(session, "d")
    session = await session.reset()
    await say(session, "e")
    read = await following
    assert [one.kind if one.kind == "prompt" else one.id for one in read] == [
        "prompt", "a", "b", "c", "d", "prompt", "e"
    ]  # fmt: skip
    assert [(one.branch, one.seq) for one in read] == [
        (1, 1), (1, 2), (1, 3), (2, 3), (1, 4), (3, 1), (3, 2)
    ]  # fmt: skip
    for place, one in enumerate(read[:-1]):
        rest = await first(len(read) - place - 1, session.follow(after=one.cursor, every=0))
        assert rest == read[place + 1 :]


@run
async def test_all_sessions_are_followed_and_resumed_at_any_entry(harness: Harness) -> None:
    sessions = await harness.manager()
    await (await sessions.create(id="before")).append(Message.user("old"))
    start = await sessions.cursor()

    async def talk(id: str) -> None:
        session = await (await harness.manager()).create(id=id)
        for number in range(10):
            await session.append(Message.user(f"{id} {number}"))

    reader = await harness.manager()
    following = asyncio.create_task(first(30, reader.follow(after=start, every=0.001)))
    await asyncio.gather(*map(talk, ("a", "b", "c")))
    read = await following
    for id in ("a", "b", "c"):
        texts = [one.entry.text for one in read if one.session == id and isinstance(one.entry, Message)]
        assert texts == [f"{id} {number}" for number in range(10)]
    for place in (0, 13, 28):
        rest = await first(29 - place, sessions.follow(after=read[place].cursor, every=0))
        assert rest == read[place + 1 :]
    (oldest, *_) = await first(1, sessions.follow(every=0))
    assert oldest.session == "before"


@run
async def test_what_cannot_be_followed_says_so(harness: Harness) -> None:
    sessions = await harness.manager()
    session = await sessions.create(id="s1")
    with pytest.raises(NotFound, match="no entry nobody"):
        await first(1, session.follow(after="nobody"))
    wrong: list[dict[str, Any]] = [{"after": 5}, {"every": -1}, {"every": "1"}]
    for which in wrong:
        for follow in (session.follow, sessions.follow):
            with pytest.raises(InputError):
                await first(1, follow(**which))
    with pytest.raises(InputError, match="not a cursor"):
        await first(1, sessions.follow(after="s1"))
    following = asyncio.create_task(first(1, session.follow(every=0.001)))
    await asyncio.sleep(0.01)
    await sessions.destroy("s1")
    with pytest.raises(NotFound):
        await following
