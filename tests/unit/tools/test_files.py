"""The built-in tools for files, run as an agent runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest, ToolCallResult
from turnstate.conversation import ConversationState
from turnstate.conversation.edits import LineTracking
from turnstate.tools import FILE_TOOLS, Approvals, Rule, ToolManager


class Agent:
    """Runs one tool after the other in a folder, with a line tracker."""

    def __init__(self, root: Path) -> None:
        self.state = ConversationState("c")
        self.tracking = LineTracking(self.state, root)
        self.manager = ToolManager(FILE_TOOLS, workspace=root, approvals=Approvals([Rule("*", "allow")]))

    def result(self, name: str, **args: Any) -> ToolCallResult:
        async def ran() -> ToolCallResult:
            calls = [ToolCallRequest(name=name, args=args)]
            (result,) = [one async for one in self.manager.run(calls, tracking=self.tracking)]
            return result

        return asyncio.run(ran())

    def run(self, name: str, **args: Any) -> str:
        result = self.result(name, **args)
        assert not result.is_error, result.result
        return str(result.result)

    def error(self, name: str, **args: Any) -> str:
        result = self.result(name, **args)
        assert result.is_error, result.result
        return str(result.result)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


@pytest.mark.req("L3")
def test_a_file_is_written_read_edited_listed_and_searched(agent: Agent, tmp_path: Path) -> None:
    assert (
        agent.run("write_file", path="src/a.py", content="one\ntwo\nthree\n") == "Created src/a.py: 3 lines."
    )
    assert agent.run("read_file", path="src/a.py") == "     1\tone\n     2\ttwo\n     3\tthree"
    shown = agent.run("read_file", path="src/a.py", first_line=2, lines=1)
    assert shown == "     2\ttwo\n[1 more lines; read on from line 3]"
    assert agent.run("edit_file", path="src/a.py", old="two", new="2") == "Replaced 1 occurrence in src/a.py."
    assert (tmp_path / "src/a.py").read_text() == "one\n2\nthree\n"
    assert agent.run("list_files", recursive=True) == "src/a.py\t12"
    assert agent.run("list_files") == "src/"
    assert agent.run("search_files", pattern="^t.*e$") == "src/a.py:3: three"
    assert agent.run("search_files", pattern="t", files="*.md") == "[no hit]"


@pytest.mark.req("N2")
def test_a_file_that_the_user_changed_is_not_overwritten_until_it_is_read_again(
    agent: Agent, tmp_path: Path
) -> None:
    agent.run("write_file", path="a", content="mine\n")
    (tmp_path / "a").write_text("yours\n")
    assert "a was changed since you last saw it" in agent.error(
        "write_file", path="a", content="mine again\n"
    )
    assert "read it before you write it" in agent.error("edit_file", path="a", old="yours", new="mine")
    assert (tmp_path / "a").read_text() == "yours\n"
    agent.run("read_file", path="a")
    agent.run("edit_file", path="a", old="yours", new="ours")
    assert (tmp_path / "a").read_text() == "ours\n"


def test_an_edit_needs_a_text_that_is_there_once(agent: Agent, tmp_path: Path) -> None:
    agent.run("write_file", path="a", content="x x\n")
    assert "2 times" in agent.error("edit_file", path="a", old="x", new="y")
    assert "does not contain" in agent.error("edit_file", path="a", old="z", new="y")
    assert "must not be empty" in agent.error("edit_file", path="a", old="", new="y")
    agent.run("edit_file", path="a", old="x", new="y", every=True)
    assert (tmp_path / "a").read_text() == "y y\n"


def test_bytes_that_are_not_text_survive_an_edit_and_are_not_shown(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9 x\n")
    agent.run("edit_file", path="latin", old="x", new="y")
    assert (tmp_path / "latin").read_bytes() == b"caf\xe9 y\n"
    (tmp_path / "binary").write_bytes(b"\0\1")
    assert "binary file" in agent.error("read_file", path="binary")
    assert agent.run("search_files", pattern="y").startswith("latin:1")


def test_a_wrong_expression_and_a_missing_workspace_say_what_to_do(agent: Agent) -> None:
    assert "not a regular expression" in agent.error("search_files", pattern="(")
    homeless = Agent(Path("/tmp"))
    homeless.manager.workspace = None
    assert "no workspace" in homeless.error("read_file", path="a")
