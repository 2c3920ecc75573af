from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from turnstate import Budget, Message, Policy, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.entry import Usage
from turnstate.log.path import entries_of, path_to, rows_forwards
from turnstate.log.replay import PathEntry, Request, replayed
from turnstate.session import Session
from turnstate.stores.memory import MemoryStore
from turnstate.tokens import counter

LIMIT = 3_000


class Sent(NamedTuple):
    tokens: int
    reused: int


async def path_of(session: Session) -> list[PathEntry]:
    store, at = session._writer.store, session._row.address
    row = await store.get(at)
    rows = [one async for one in rows_forwards(store, at, await path_to(store, at, row.head))]
    return list(zip(rows, await entries_of(rows), strict=True))


async def request(session: Session, budget: Budget, reply: Message) -> Sent:
    window = await session.window(budget)
    await session.append(reply)
    return Sent(window.tokens, window.reused_prefix_tokens)


async def talk(session: Session, budget: Budget, turns: int) -> list[Sent]:
    """Talk to a model that calls tools; return what was really sent for each of its replies."""
    sent = list[Sent]()
    for number in range(turns):
        await session.append(Message.user(f"Question {number}: what is in the log?"))
        calls = [ToolCallRequest(name="read", args={"n": n}) for n in range(1 + number % 3)]
        sent.append(await request(session, budget, Message.assistant(None, tool_calls=calls)))
        lines = "\n".join(f"line {line} of log {number}" for line in range(number * 7 % 60))
        results = [ToolCallResult(tool_call_id=call.id, result=lines) for call in calls]
        await session.append(Message.tool(results))
        sent.append(await request(session, budget, Message.assistant(f"Nothing new in {number}.")))
        if number % 10 == 4:
            await session.compact(budget)
    return sent


def test_a_replay_has_the_tokens_and_the_reuse_of_what_was_sent() -> None:
    async def test() -> tuple[list[Sent], list[PathEntry]]:
        async with SessionManager(MemoryStore()) as sessions:
            session = await sessions.create(system="You help.")
            sent = await talk(session, Budget(LIMIT), 24)
            return sent, await path_of(session)

    sent, path = asyncio.run(test())
    exact = replayed(path, counter("o200k_base"), Policy(), last=len(sent))
    assert [Sent(one.tokens, one.reused or 0) for one in exact] == sent
    assert sum(bool(one.decided) for one in exact) > 2
    summed = replayed(path, counter("o200k_base"), Policy())
    assert [one.tokens for one in summed] == [one.tokens for one in exact]
    assert {one.reused for one in summed} == {None}
    assert [one.reused for one in replayed(path, counter("o200k_base"), Policy(), last=5)] == [
        one.reused for one in exact[-5:]
    ]


def test_cuts_hold_under_any_policy_and_model_and_reported_usage_stands_beside() -> None:
    async def test() -> tuple[list[Sent], list[PathEntry]]:
        async with SessionManager(MemoryStore(), policy=Policy(lock_turns=2, low_water=0.5)) as sessions:
            session = await sessions.create()
            sent = await talk(session, Budget(LIMIT), 12)
            await session.set_model("claude-sonnet-4-5")
            sent += await talk(session, Budget(LIMIT), 3)
            return sent, await path_of(session)

    sent, path = asyncio.run(test())
    path.append((path[-1][0], Usage(input=700, output=9, cached=650)))
    found: list[Request] = replayed(path, counter("o200k_base"), Policy())
    assert [one.tokens for one in found] == [one.tokens for one in sent]
    assert found[-1].reported == Usage(input=700, output=9, cached=650)
    assert {one.limit for one in found} == {LIMIT}


@pytest.mark.parametrize("entries", [0, 1])
def test_a_path_without_a_reply_has_no_request(entries: int) -> None:
    async def test() -> list[PathEntry]:
        async with SessionManager(MemoryStore()) as sessions:
            session = await sessions.create()
            if entries:
                await session.append(Message.user("Anybody there?"))
            return await path_of(session)

    assert replayed(asyncio.run(test()), counter("o200k_base"), Policy(), last=3) == []
