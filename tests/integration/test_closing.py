"""A snapshot of a clean close restores an unfinished turn, even without the store."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.valkey_server import fresh_server
from turnstate import Budget, Message, SessionManager, ToolCallRequest, ToolCallResult, formats
from turnstate.context.cut import Strategy
from turnstate.entry import ABANDONED, INTERRUPTED
from turnstate.errors import InvalidMessage, NotFound
from turnstate.home import Home
from turnstate.session import Session
from turnstate.snapshots import Snapshots

pytestmark = pytest.mark.req("H1", "H2", "H3")

WIDE = Budget(100_000)


class Places:
    """A store, a folder of snapshots, and processes with and without that store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.snapshots = Snapshots(home=Home(folder / "home"), workspace=folder)

    @asynccontextmanager
    async def process(self, *, store: bool = True) -> AsyncIterator[SessionManager]:
        """Open the store, or an empty one as if the store were lost."""
        url = self.url if store else "memory:"
        async with await SessionManager.open(url, snapshots=self.snapshots) as sessions:
            yield sessions


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path, f"sqlite:///{tmp_path}/agent.db")


@pytest.fixture(params=["memory", "postgres", "valkey"])
def other_places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """The places for the stores that the other tests do not use."""
    match request.param:
        case "postgres":
            with fresh_url() as url:
                yield Places(tmp_path, url)
        case "valkey":
            yield Places(tmp_path, fresh_server())
        case _:
            yield Places(tmp_path, "memory:")


def result(of: ToolCallRequest, value: Any) -> Message:
    return Message.tool([ToolCallResult(tool_call_id=of.id, result=value)])


def call(name: str) -> ToolCallRequest:
    return ToolCallRequest(name=name, args={})


async def plain(session: Session) -> bytes:
    """Make the window, see that every provider accepts it, and return its bytes."""
    window = await session.window(WIDE)
    for name in formats.names():
        one = formats.get(name)
        assert one.validate(one.render(window.messages)) == [], name
    return msgspec.json.encode(window.messages)


@pytest.mark.parametrize("by", ["session", "a handle that is garbage"])
@pytest.mark.parametrize("before", ["nothing", "a turn", "a turn in a snapshot"])
def test_an_unanswered_prompt_is_in_the_snapshot_of_a_clean_close(
    tmp_path: Path, by: str, before: str
) -> None:
    asyncio.run(close_with_a_prompt(Places(tmp_path, f"sqlite:///{tmp_path}/agent.db"), by, before))


def test_an_unanswered_prompt_is_in_the_snapshot_for_every_store(other_places: Places) -> None:
    asyncio.run(close_with_a_prompt(other_places, "session", "a turn in a snapshot"))


async def close_with_a_prompt(places: Places, by: str, before: str) -> None:
    """Close a process while a prompt has no answer, and restore the session without its store."""
    async with places.process() as sessions:
        session = await sessions.create(id="s", system="You keep a lighthouse.")
        if before != "nothing":
            await session.append(Message.user("hello"), Message.assistant("hi"))
        if before == "a turn in a snapshot":
            await sessions.settled()
        await session.append(Message.user("is it lit?"))
        seen = await plain(session)
        if by == "a handle that is garbage":
            del session
            gc.collect()
    async with places.process(store=False) as sessions:
        session = await sessions.restore("s")
        assert (await session.messages())[-1].text == "is it lit?"
        assert await plain(session) == seen
        await session.append(Message.assistant("it is"))


def test_open_calls_are_in_the_snapshot_and_their_results_may_come_late(places: Places) -> None:
    one, two = call("one"), call("two")

    async def talk() -> None:
        async with places.process() as sessions:
            session = await sessions.create(id="s")
            await session.append(Message.user("go"), Message.assistant("on it", tool_calls=[one, two]))
            await session.append(result(one, "first"))

    async def repair() -> bytes:
        async with places.process(store=False) as sessions:
            session = await sessions.restore("s")
            (last,) = await session.messages(last=1)
            assert [(r.result, r.is_error) for r in last.tool_results] == [(INTERRUPTED, True)]
            return await plain(session)

    async def late(seen: bytes) -> bytes:  # the answer was saved, though nothing else was said
        async with places.process(store=False) as sessions:
            session = await sessions.restore("s")
            assert await plain(session) == seen
            await session.append(result(two, "late"))
            after = await plain(session)
            assert after.startswith(seen[:-1])
            return after

    async def again(seen: bytes) -> None:
        async with places.process(store=False) as sessions:
            session = await sessions.restore("s")
            assert await plain(session) == seen
            await session.append(result(two, "late"))
            assert await plain(session) == seen
            for of in (one, two):
                with pytest.raises(InvalidMessage, match="already has a different result"):
                    await session.append(result(of, "another"))

    asyncio.run(talk())
    asyncio.run(again(asyncio.run(late(asyncio.run(repair())))))


def test_a_call_that_the_user_did_not_wait_for_is_shown_the_same_after_the_store_is_gone(
    places: Places,
) -> None:
    one, two = call("one"), call("two")

    async def talk() -> bytes:
        async with places.process() as sessions:
            session = await sessions.create(id="s")
            await session.append(Message.user("go"), Message.assistant("on it", tool_calls=[one, two]))
            await session.append(Message.user("never mind"))
            return await plain(session)

    async def check(seen: bytes) -> None:
        async with places.process(store=False) as sessions:
            session = await sessions.restore("s")
            assert await plain(session) == seen
            given = [r.result for m in (await session.snapshot()).messages for r in m.tool_results]
            assert given == [ABANDONED] * 2
            await session.append(result(one, "late"))

    asyncio.run(check(asyncio.run(talk())))


def test_a_change_without_a_message_is_in_the_snapshot_too(places: Places) -> None:
    async def talk() -> bytes:
        async with places.process() as sessions:
            session = await sessions.create(id="s")
            await session.append(Message.user("a"), Message.assistant("b", id="b"))
            await session.append(Message.user("c"), Message.assistant("d"))
            await sessions.settled()
            await session.rewind(to="b")
            return await plain(session)

    async def check(seen: bytes) -> None:
        async with places.process(store=False) as sessions:
            assert await plain(await sessions.restore("s")) == seen

    asyncio.run(check(asyncio.run(talk())))


def test_a_summary_that_covers_everything_comes_back(places: Places) -> None:
    async def talk() -> None:
        async with places.process() as sessions:
            session = await sessions.create(id="s", system="You keep a lighthouse.")
            await session.append(Message.user("the lamp is broken"), Message.assistant("I see"))
            await session.compact(WIDE, strategy=Strategy(keep=0), model=False)

    async def check() -> None:
        async with places.process(store=False) as sessions:
            session = await sessions.restore("s")
            await session.append(Message.user("and now?"))
            assert b"the lamp is broken" in await plain(session)

    asyncio.run(talk())
    asyncio.run(check())


@pytest.mark.parametrize("how", ["destroy", "erase"])
def test_a_session_that_was_removed_with_a_prompt_waiting_does_not_come_back(
    places: Places, how: str
) -> None:
    async def talk() -> None:
        async with places.process() as sessions:
            session = await sessions.create(id="s", user="u")
            async with session.lease():
                await session.append(Message.user("a secret"))
            await (sessions.destroy("s") if how == "destroy" else sessions.erase(user="u"))

    async def check() -> None:
        async with places.process(store=False) as sessions:
            with pytest.raises(NotFound):
                await sessions.restore("s")

    asyncio.run(talk())
    asyncio.run(check())


def test_a_process_that_only_reads_writes_no_snapshot(places: Places) -> None:
    async def talk() -> None:
        async with places.process() as sessions:
            session = await sessions.create(id="s")
            await session.append(Message.user("hello"))

    async def read() -> None:
        async with places.process() as sessions:
            await (await sessions.open("s")).messages()

    asyncio.run(talk())
    before = places.snapshots.list("default/s")
    assert len(before) == 1
    asyncio.run(read())
    assert places.snapshots.list("default/s") == before
