"""A run goes on from its snapshot when its store is deleted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from turnstate import Budget, Message, SessionManager, ToolCallRequest, formats
from turnstate.agent import Agent, Ended, ToolFinished, tool
from turnstate.home import Home
from turnstate.models import ModelRequest
from turnstate.session import Session
from turnstate.snapshots import Snapshots
from turnstate.testing import ScriptedModel
from turnstate.tools import Approvals, Rule, ToolManager

BUDGET, ROUNDS = Budget(20_000, output=1_000), 4


def reply(request: ModelRequest) -> Message:
    done = sum(message.role == "assistant" for message in request.messages)
    if done == ROUNDS:
        return Message.assistant("Done.")
    return Message.assistant(tool_calls=[ToolCallRequest(name="pay", args={"what": str(done)})])


def agent(session: Session, paid: list[str]) -> Agent:
    @tool
    async def pay(what: str) -> str:
        """Pay."""
        paid.append(what)
        return f"paid {what}"

    tools = ToolManager([pay], approvals=Approvals([Rule("*", "allow")]))
    return Agent(model=ScriptedModel(*[reply] * 9), session=session, tools=tools, budget=BUDGET)


@pytest.mark.req("H2", "H3", "P1")
def test_a_run_that_was_interrupted_goes_on_with_the_store_deleted(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / ".openstarry" / "snapshots", Home(tmp_path / "home"))

    async def begun(url: str, paid: list[str], stop: int) -> str:
        async with SessionManager.open(url, snapshots=snapshots) as sessions:
            session = await sessions.create(user="ann", system="You pay.")
            async with aclosing(agent(session, paid).run("Pay.")) as events:
                async for event in events:
                    stop -= isinstance(event, ToolFinished)
                    if not stop:
                        break
            return session.id

    async def went_on(url: str, id: str, paid: list[str]) -> None:
        async with SessionManager.open(url, snapshots=snapshots) as sessions:
            session = await sessions.restore(id, user="ann")
            events = [event async for event in agent(session, paid).resume()]
            last = events[-1]
            assert isinstance(last, Ended)
            assert last.reason == "done"
            window = await session.window(BUDGET)
            for name in formats.names():
                assert formats.get(name).validate(formats.get(name).render(window.messages)) == []
            messages = await session.messages()
            assert [one.text for one in messages if one.role == "user"] == ["Pay."]
            assert messages[-1].text == "Done."

    for stop in (1, ROUNDS):
        paid = list[str]()
        first, second = tmp_path / f"{stop}.db", tmp_path / f"{stop}b.db"
        id = asyncio.run(begun(f"sqlite:///{first}", paid, stop))
        for path in tmp_path.glob(f"{first.name}*"):
            path.unlink()
        asyncio.run(went_on(f"sqlite:///{second}", id, paid))
        assert paid == [str(number) for number in range(ROUNDS)]


@pytest.mark.req("H3", "P1")
def test_what_a_process_had_saved_before_it_vanished_is_in_its_snapshot(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / ".openstarry" / "snapshots", Home(tmp_path / "home"))

    async def vanished() -> None:
        paid = list[str]()
        async with SessionManager.open(f"sqlite:///{tmp_path}/a.db", snapshots=snapshots) as sessions:
            session = await sessions.create()
            async with aclosing(agent(session, paid).run("Pay.")) as events:
                async for event in events:
                    if isinstance(event, ToolFinished):
                        break
            while (
                snapshots.restore(f"default/{session.id}") is None
            ):  # written in the background, with no goodbye
                await asyncio.sleep(0.01)
            async with SessionManager.open(f"sqlite:///{tmp_path}/b.db", snapshots=snapshots) as others:
                again = await others.restore(session.id)
                last = [event async for event in agent(again, paid).resume()][-1]
                assert isinstance(last, Ended)
                assert (last.reason, paid) == ("done", [str(number) for number in range(ROUNDS)])

    asyncio.run(vanished())
