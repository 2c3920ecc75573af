"""Sessions with a past, to be moved from one store to another, and everything that can be seen of them.

The pasts hold what an archive must carry: ids, prompts, branches by fork, rewind and reset, cuts and a
model's summary, calls without a result, an end, tags and meta; and a session in which nothing was said.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import structs

from turnstate import Budget, Message, ToolCallRequest, ToolCallResult, formats
from turnstate.formats import rendered
from turnstate.session import Session, SessionManager
from turnstate.stores.values import Address, Span
from turnstate.testing import ScriptedModel, conversations

END = 2**31 - 1
BUDGETS = (Budget(window=3_000), Budget(window=40_000))
SUMMARY = "Goal: read the log.\nNext: read the rest of it."


def make_pasts(url: str) -> None:
    """Keep four sessions in a store."""
    asyncio.run(_make(url))


async def _make(url: str) -> None:
    async with await SessionManager.open(url, model=ScriptedModel(*[SUMMARY] * 9)) as sessions:
        whole = await sessions.create(
            user="anna",
            system="You help. 日本語",
            title="A life “with” \\ everything 🙂",
            tags=["b", "a"],
            meta={"n": 1, "nested": {"x": [1.5, None, True, "é"]}},
            idle=360_000,
        )
        await _worked(whole, 30)
        await whole.append(Message.user("never mind"))
        for size in (6_000, 5_000, 3_000):
            await whole.window(Budget(window=size))
            await sessions.settled()
        await _branched(whole)
        for seed in (3, 4):
            session = await sessions.create(user="bob", title=f"Talk {seed}")
            await _told(session, conversations.valid(seed, turns=12))
            await session.window(Budget(window=1_500))
        await session.end("done")
        await sessions.create(id="nothing was said")


async def _worked(session: Session, turns: int) -> None:
    """Talk with calls and long results; the last call is never answered."""
    for number in range(turns):
        call = ToolCallRequest(name="read", args={"file": f"log{number}", "lines": [1, 2.5, None]})
        await session.append(Message.user(f"question {number}"), Message.assistant(None, tool_calls=[call]))
        result = {"text": f"line {number} of the log\n" * 30, "code": number}
        await session.append(
            Message.tool([ToolCallResult(tool_call_id=call.id, result=result)]),
            Message.assistant(f"answer {number}"),
        )
    lost = ToolCallRequest(name="read", args={})
    await session.append(Message.user("more?"), Message.assistant(None, tool_calls=[lost]))


async def _branched(session: Session) -> None:
    said = await session.messages()
    await session.fork(at=said[10].id, name="what if")
    await session.append(Message.user("what if?"), Message.assistant("then that"))
    await session.set_system("You doubt.")
    await session.rewind(to=said[4].id)
    await session.append(Message.user("again"))
    await session.undo()
    session = await session.reset(system="You begin anew.")
    await session.append(Message.user("anew"))
    await session.fork(at=said[-3].id, name="back")
    await _worked(session, 5)  # and the last call waits for its result


async def _told(session: Session, messages: list[Message]) -> None:
    for message in messages:
        if message.role != "system":
            await session.append(message)


def everything_in(url: str, tenant: str = "default") -> list[Any]:
    """Return everything that a store shows of its sessions, and last the bytes of new windows."""
    return asyncio.run(_everything_in(url, tenant))


async def _everything_in(url: str, tenant: str) -> list[Any]:
    async with await SessionManager.open(url, tenant=tenant) as sessions:
        kept = [info async for info in sessions.all()]
        found: list[Any] = [structs.replace(info, tenant="") for info in kept]
        for info in kept:
            at = Address(tenant, info.id)
            branches = await sessions.store.branches(at)
            found += branches
            for branch in branches:
                found += await sessions.store.read(at, Span(branch.id, 1, END))
        hits = [(hit.session, hit.message.id) async for hit in sessions.search("log", limit=END)]
        found.append(sorted(hits))  # those that came last are first, and branches come one after the other
        for info in kept:
            found += [await _sent(await sessions.open(info.id), budget) for budget in BUDGETS]
        return found


async def _sent(session: Session, budget: Budget) -> list[bytes]:
    """Return what each provider would be sent; nothing more is written to a session that has ended."""
    window = await (session.window(budget) if session._row.ended is None else session.preview(budget))
    return [
        msgspec.json.encode(rendered(window.messages, formats.get(name)).payload)
        for name in formats.names()
        if window.messages
    ]
