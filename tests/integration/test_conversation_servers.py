"""Conversations with tangents, compactions and undo, on PostgreSQL and Redis as everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from postgres_server import fresh_url
from valkey_server import fresh_cluster, fresh_server

from turnstate import Budget, Message, SessionManager
from turnstate.context.cut import Strategy
from turnstate.conversation import ConversationState, fields
from turnstate.log.records import recount
from turnstate.session import Session

BUDGET = Budget(4_000)


@pytest.fixture(params=["postgres", "redis", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_url() as found:
            yield found
    else:
        yield fresh_server() if request.param == "redis" else fresh_cluster()


def said(state: ConversationState, *questions: str) -> None:
    for question in questions:
        state.set_next_user_message(question)
        state.push_assistant_message(Message.assistant(f"answer to {question}"))


async def shown(session: Session) -> bytes:
    return msgspec.json.encode((await session.window(BUDGET)).messages)


def plain(state: ConversationState) -> bytes:
    return msgspec.json.encode(fields(state))


async def lived(url: str) -> None:
    async with await SessionManager.open(url) as here, await SessionManager.open(url) as there:
        session = await here.create(system="You keep a lighthouse.")
        state = await session.conversation()
        said(state, *(f"night {night}: " + "how is the lamp? " * 20 for night in range(40)))
        await session.commit(state)
        before, main = await shown(session), plain(await session.conversation())

        await session.compact(BUDGET, strategy=Strategy(keep=2))
        assert (await session.window(Budget(700))).tokens <= 700
        other = await there.open(session.id)
        compacted = plain(await other.conversation())
        assert compacted != main

        state = await other.conversation()
        state.enter_tangent_mode()
        said(state, "aside")
        await other.commit(state)
        inside = plain(await session.conversation())
        state.exit_tangent_mode()
        await other.commit(state)
        assert plain(await session.conversation()) == compacted

        assert await session.undo() == "tangent exit"
        assert plain(await other.conversation()) == inside
        assert await other.undo() == "tangent"
        assert await session.undo() == "compact"
        assert await shown(session) == await shown(other) == before
        assert plain(await other.conversation()) == main
        kept = (await session.conversation()).kept_tangents()
        assert [one.opening for one in kept] == ["aside"]

        await session.set_model("claude-sonnet-4-5")
        await other.append(Message.user("a handle that missed the change"), Message.assistant("counts anew"))
        assert (await other.model()) == (await session.conversation()).model_info
        assert await shown(session) == await shown(other) == await shown(await here.open(session.id))
        assert [one async for one in here.store.verify(repair=False, recount=recount)] == []


@pytest.mark.req("B1", "D5", "I1", "J1", "J2", "G3")
def test_tangents_and_compactions_are_written_undone_and_seen_by_all_workers(url: str) -> None:
    asyncio.run(lived(url))
