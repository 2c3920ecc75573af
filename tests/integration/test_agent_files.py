"""An agent made from its file: tools, servers, rules, hooks, prompt and sticky files are in its requests."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from turnstate import Message, SessionManager, ToolCallRequest
from turnstate.agent import Ended, ToolFinished
from turnstate.config import AgentProfile, NotTrusted, Trust, load_agent
from turnstate.errors import InputError
from turnstate.home import Home
from turnstate.testing import ScriptedModel
from turnstate.tools import tool

MCP_SERVER = Path(__file__).parents[1] / "harness" / "mcp_server.py"

AGENT = """
prompt = "You keep a lighthouse."
tools = ["read_file", "write_file", "log", "tests__add"]
sticky = ["rules.md"]

[budget]
window = 20_000
output = 1_000

[limits]
rounds = 6

[mcp.tests]
command = "./server"

[[approve]]
tool = "*"
decision = "allow"

[[approve]]
tool = "write_file"
decision = "deny"
path = "*.lock"

[[hooks.before_tool]]
command = "/bin/sh"
args = ["-c", '''echo '{"result": "fog, says the hook"}' ''']
tools = ["log"]
"""


@tool
def log(night: int) -> str:
    """Return the log of a night."""
    return f"night {night}"


@tool
def hidden() -> str:
    """Not chosen by the agent."""
    return ""


def call(name: str, **args: Any) -> ToolCallRequest:
    return ToolCallRequest(name=name, args=args)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / ".turnstate" / "agents").mkdir(parents=True)
    (place / "rules.md").write_text("Say lamp, not lantern.")
    return place


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.mark.req("L4", "P1")
def test_an_agent_works_as_its_file_says_once_it_is_approved(folder: Path, home: Home) -> None:
    path = folder / ".turnstate" / "agents" / "keeper.toml"
    path.write_text(AGENT)
    server = folder / "server"
    server.write_text(f"#!/bin/sh\nexec {sys.executable} {MCP_SERVER}\n")
    server.chmod(0o755)
    model = ScriptedModel(
        Message.assistant(
            tool_calls=[
                call("tests__add", a=2, b=3),
                call("log", night=1),
                call("write_file", path="a.lock", content="x"),
                call("write_file", path="a.txt", content="x"),
                call("run_command", command="touch b.txt"),
            ]
        ),
        "Five.",
    )

    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            settings: dict[str, Any] = {"folder": folder, "home": home, "model": model}
            with pytest.raises(NotTrusted):
                async with load_agent("keeper", session, **settings):
                    pass
            assert await session.messages() == []
            Trust(home).approve(path, path.read_bytes())
            async with load_agent("keeper", session, tools=[log, hidden], **settings) as agent:
                events = [event async for event in agent.run("What is 2 + 3?")]
                assert (agent.budget.window, agent.limits.rounds) == (20_000, 6)
            results = {one.call.name + str(one.call.args.get("path", "")): one.result for one in events
                       if isinstance(one, ToolFinished)}  # fmt: skip
            assert results["tests__add"].result == "5"
            assert results["log"].result == "fog, says the hook"
            assert results["write_filea.lock"].result == "write_file is not allowed here"
            assert not results["write_filea.txt"].is_error
            assert "there is no tool run_command" in results["run_command"].result
            assert isinstance(events[-1], Ended)
            assert events[-1].reason == "done"
            assert await session.system() == "You keep a lighthouse."

            entries = await session.entries()
            same = AgentProfile(name="same", prompt="You keep a lighthouse.")
            async with load_agent(same, session, **settings):
                assert await session.entries() == entries  # the prompt is in force already

    asyncio.run(main())
    assert (folder / "a.txt").exists()
    assert not (folder / "b.txt").exists()
    request = model.requests[0]
    assert {spec.name for spec in request.tools} == {"read_file", "write_file", "log", "tests__add"}
    assert request.messages[0].text == "You keep a lighthouse."
    assert "Say lamp, not lantern." in request.messages[1].text


@pytest.mark.req("L4")
def test_nothing_of_a_hostile_workspace_starts(folder: Path, home: Home) -> None:
    started = {
        "servers": "[mcp.x]\ncommand = 'touch'\nargs = ['pwned']",
        "hooks": "",
        "rules": "",
        "limits": "",
    }
    started["hooks"] = "[[hooks.before_request]]\ncommand = 'touch'\nargs = ['pwned']"
    started["rules"] = "[[approve]]\ntool = '*'\ndecision = 'allow'"
    started["limits"] = f"[limits]\nrounds = 10\n{started['servers']}"

    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            for text in started.values():
                (folder / "turnstate.toml").write_text(text)
                with pytest.raises(NotTrusted):
                    async with load_agent(None, session, folder=folder, home=home, model=ScriptedModel("x")):
                        pass

    asyncio.run(main())
    assert not (folder / "pwned").exists()


def test_without_a_file_there_is_an_agent_with_all_tools_and_no_permission(folder: Path, home: Home) -> None:
    async def main() -> None:
        async with SessionManager.open("memory:") as sessions:
            session = await sessions.create()
            model = ScriptedModel(Message.assistant(tool_calls=[call("run_command", command="ls")]), "Done.")
            async with load_agent(None, session, folder=folder, home=home, model=model) as agent:
                finished = [one async for one in agent.run("Go.") if isinstance(one, ToolFinished)]
            assert [one.result.is_error for one in finished] == [True]

    asyncio.run(main())


def test_a_tool_that_nothing_offers_and_a_missing_model_are_errors(folder: Path, home: Home) -> None:
    async def load(text: str, **given: Any) -> None:
        path = folder / ".turnstate" / "agents" / "keeper.toml"
        path.write_text(text)
        Trust(home).approve(path, path.read_bytes())
        async with (
            SessionManager.open("memory:") as sessions,
            load_agent("keeper", await sessions.create(), folder=folder, home=home, **given),
        ):
            pass

    with pytest.raises(
        InputError, match="wants the tool 'red_file', which is unknown; did you mean read_file"
    ):
        asyncio.run(load("tools = ['red_file']", model=ScriptedModel()))
    with pytest.raises(InputError, match="no model is configured"):
        asyncio.run(load(""))
