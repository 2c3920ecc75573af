"""Conversations, their reading and their state, on PostgreSQL and Redis as everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from tests.harness.postgres_server import fresh_url
from tests.harness.valkey_server import fresh_cluster, fresh_server
from turnstate import Budget, Message, SessionManager
from turnstate.context.cut import Strategy
from turnstate.conversation import fields
from turnstate.errors import Conflict
from turnstate.log.records import recount
from turnstate.session import LogEntry, Session

BUDGET = Budget(4_000)


@pytest.fixture(params=["postgres", "redis", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_url() as found:
            yield found
    else:
        yield fresh_server() if request.param == "redis" else fresh_cluster()


async def said(session: Session, *questions: str) -> None:
    for question in questions:
        await session.append(Message.user(question), Message.assistant(f"answer to {question}"))


async def shown(session: Session) -> bytes:
    return msgspec.json.encode((await session.window(BUDGET)).messages)


async def plain(session: Session) -> bytes:
    return msgspec.json.encode(fields(await session.conversation(last=100)))


async def lived(url: str) -> None:
    async with await SessionManager.open(url) as here, await SessionManager.open(url) as there:
        session = await here.create(system="You keep a lighthouse.")
        await said(session, *(f"night {night}: " + "how is the lamp? " * 20 for night in range(40)))
        before, main = await shown(session), await plain(session)

        await session.compact(BUDGET, strategy=Strategy(keep=2))
        assert (await session.window(Budget(700))).tokens <= 700
        other = await there.open(session.id)
        compacted = await plain(other)
        assert compacted != main

        await other.begin_tangent()
        await said(other, "aside")
        inside = await plain(session)
        await other.leave_tangent()
        assert await plain(session) == compacted

        assert await session.undo() == "tangent exit"
        assert await plain(other) == inside
        assert await other.undo() == "tangent"
        assert await session.undo() == "compact"
        assert await shown(session) == await shown(other) == before
        assert await plain(other) == main
        kept = await session.tangents()
        assert [one.opening for one in kept] == ["aside"]

        await session.set_model("claude-sonnet-4-5")
        await other.append(Message.user("a handle that missed the change"), Message.assistant("counts anew"))
        assert (await other.model()) == (await session.conversation()).model_info
        assert await shown(session) == await shown(other) == await shown(await here.open(session.id))
        assert [one async for one in here.store.verify(repair=False, recount=recount)] == []


@pytest.mark.req("B1", "D5", "I1", "J1", "J2", "G3")
def test_tangents_and_compactions_are_written_undone_and_seen_by_all_workers(url: str) -> None:
    asyncio.run(lived(url))


async def texts(found: AsyncIterator[LogEntry], count: int) -> list[str]:
    """Return the texts of the next messages that somebody follows."""
    said = list[str]()
    async for one in found:
        said += [one.entry.text] if isinstance(one.entry, Message) else []
        if len(said) == count:
            break
    return said


async def read(url: str) -> None:
    async with await SessionManager.open(url) as here, await SessionManager.open(url) as there:
        start = await here.cursor()
        session, other = await here.create(id="s1", user="anna"), await here.create(id="s2", user="anna")
        questions = [f"question {number}" for number in range(5)]
        for text in questions:
            await session.append(Message.user(text, id=text.replace(" ", "")))
        await other.append(Message.user("question elsewhere"))
        session = await there.open("s1")

        page = await session.messages(after="question1", limit=2)
        assert [one.text for one in page] == questions[2:4]
        assert await texts(session.follow(every=0), 5) == questions
        assert sorted(await texts(there.follow(after=start, every=0), 6)) == sorted(
            [*questions, "question elsewhere"]
        )
        assert [hit.message.text async for hit in there.search("elsewhere", session="s1")] == []
        assert len([hit async for hit in there.search("question", session="s1")]) == 5
        listed = await there.list(order="active", limit=1)
        rest = await there.list(order="active", limit=1, cursor=listed.cursor)
        assert [one.id for page in (listed, rest) for one in page] == ["s2", "s1"]

        first = await session.state.set("app", "step", 1)
        await session.state.set("app", "step", 2, expected=first.version)
        with pytest.raises(Conflict):
            await session.state.set("app", "step", 3, expected=first.version)
        await session.rewind("question3")
        assert (await session.state.items(), len(await session.messages())) == ([], 4)
        assert [one.seq for one in await session.entries(kinds=["message"])] == [1, 2, 3, 4]
        assert len(await session.messages(branch=1)) == 5
        await session.annotate({"seen": 1}, expected={})
        with pytest.raises(Conflict):
            await session.annotate({"seen": 2}, expected={})

        await there.user_state("anna").set("app", "theme", "dark")
        found = await here.user_state("anna").get("app", "theme")
        assert found is not None
        assert found.value == "dark"
        await here.erase(user="anna")
        assert await there.user_state("anna").get("app", "theme") is None


@pytest.mark.req("G6")
def test_what_one_worker_writes_another_reads_follows_and_replaces_by_version(url: str) -> None:
    asyncio.run(read(url))
