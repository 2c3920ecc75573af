"""Sub-agents: sessions that are linked, results that come back, and nothing that is done twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from turnstate import Budget, Message, Session, SessionManager, ToolCallRequest
from turnstate.agent import Agent, Limits, ToolFinished, subagent, tool
from turnstate.models import ModelRequest
from turnstate.testing import ScriptedModel
from turnstate.tools import Approvals, Rule, Tool, ToolManager

BUDGET = Budget(20_000, output=1_000)
ALLOW = Approvals([Rule("*", "allow")])


def delegates(*tasks: str) -> Message:
    return Message.assistant(
        tool_calls=[ToolCallRequest(name="delegate", args={"task": task}) for task in tasks]
    )


class Shop:
    """A tool that must not run twice, and a model that pays once for what the task names."""

    def __init__(self) -> None:
        self.paid, self.entered, self.open = list[str](), asyncio.Event(), asyncio.Event()
        self.open.set()

    def reply(self, request: ModelRequest) -> Message:
        task = next(message.text for message in request.messages if message.role == "user")
        if request.messages[-1].role == "tool":
            (result,) = request.messages[-1].tool_results
            return Message.assistant(f"{task}: {result.result}")
        return Message.assistant(tool_calls=[ToolCallRequest(name="pay", args={"what": task})])

    def agent(self, sessions: SessionManager, **settings: Any) -> Tool:
        @tool
        async def pay(what: str) -> str:
            """Pay."""
            self.paid.append(what)
            self.entered.set()
            await self.open.wait()
            return "paid"

        return subagent(
            sessions,
            model=ScriptedModel(*[self.reply] * 20),
            system="You pay.",
            tools=ToolManager([pay], approvals=ALLOW),
            budget=BUDGET,
            **settings,
        )


async def results(agent: Agent, words: str | None) -> list[str]:
    run = agent.resume() if words is None else agent.run(words)
    return [event.result.result async for event in run if isinstance(event, ToolFinished)]


def above(session: Session, pays: Tool, *script: Message | str) -> Agent:
    tools = ToolManager([pays], approvals=ALLOW)
    return Agent(model=ScriptedModel(*script), session=session, tools=tools, budget=BUDGET)


@pytest.mark.req("P1")
def test_sub_agents_work_side_by_side_in_sessions_that_are_linked_both_ways(tmp_path: Path) -> None:
    async def delegated() -> None:
        shop = Shop()
        async with SessionManager.open(f"sqlite:///{tmp_path}/a.db") as sessions:
            session = await sessions.create(user="ann")
            agent = above(session, shop.agent(sessions), delegates("bread", "salt"), "Both are paid.")
            assert sorted(await results(agent, "Buy.")) == ["bread: paid", "salt: paid"]
            links = await session.state.items("subagents")
            assert len(links) == 2
            for link in links:
                child = await sessions.open(link.value, user="ann")
                assert child.info.meta["parent"] == {"session": session.id, "call": link.key, "depth": 2}
                assert [one.role for one in await child.messages()] == [
                    *("user", "assistant", "tool", "assistant")
                ]
            assert await session.pending() is None

    asyncio.run(delegated())


@pytest.mark.req("P1")
def test_a_sub_agent_is_cancelled_with_its_caller_and_does_nothing_twice(tmp_path: Path) -> None:
    async def interrupted() -> None:
        shop = Shop()
        async with SessionManager.open(f"sqlite:///{tmp_path}/a.db") as sessions:
            session = await sessions.create()
            shop.open.clear()
            first = above(session, shop.agent(sessions), delegates("bread"))
            running = asyncio.ensure_future(results(first, "Buy."))
            await shop.entered.wait()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            (link,) = await session.state.items("subagents")
            child = await sessions.open(link.value)
            pending = await child.pending()
            assert pending is not None
            assert len(pending.started) == 1
            shop.open.set()
            (result,) = await results(above(session, shop.agent(sessions), "I will look."), None)
            assert "may have run" in result
            assert shop.paid == ["bread"]
            assert [row.id for row in await sessions.list()] == [child.id, session.id]

    asyncio.run(interrupted())


def test_a_result_that_was_lost_is_found_again_without_another_request(tmp_path: Path) -> None:
    async def lost() -> None:
        shop = Shop()
        async with SessionManager.open(f"sqlite:///{tmp_path}/a.db") as sessions:
            session = await sessions.create()
            pays = shop.agent(sessions)
            await session.append(Message.user("Buy."), delegates("bread"))
            manager = ToolManager([pays], approvals=ALLOW)
            (call,) = (await session.messages())[-1].tool_calls
            for _ in range(2):
                async with aclosing(manager.run([call], session=session)) as found:
                    assert [one.result async for one in found] == ["bread: paid"]
            assert shop.paid == ["bread"]

    asyncio.run(lost())


def test_a_sub_agent_that_is_stopped_or_nests_too_deep_is_an_error_result() -> None:
    async def stopped() -> None:
        shop = Shop()
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            limited = shop.agent(sessions, limits=Limits(rounds=1))
            (result,) = await results(above(session, limited, delegates("bread"), "Oh."), "Buy.")
            assert "stopped before it was done: the limit of 1 requests is reached" in result
            deep = await sessions.create(meta={"parent": {"session": "x", "call": "y", "depth": 4}})
            (result,) = await results(above(deep, limited, delegates("salt"), "Oh."), "Buy.")
            assert "at most 4 deep" in result

    asyncio.run(stopped())
