"""The built-in tools for files, run as an agent runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest, ToolCallResult
from turnstate.conversation.edits import LineTracking
from turnstate.shadow.folder import About, make
from turnstate.tools import FILE_TOOLS, Approvals, Rule, ToolManager


class Agent:
    """Runs one tool after the other in a folder, with a line tracker."""

    def __init__(self, root: Path) -> None:
        self.tracking = LineTracking(root)
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


def searched(agent: Agent, monkeypatch: pytest.MonkeyPatch, **args: Any) -> str:
    """Search with ever later deadlines until the first file was searched: a busy machine starts slowly."""
    for seconds in (0.5, 2.0, 8.0, 30.0):
        monkeypatch.setattr("turnstate.tools.file_tools.SEARCH_SECONDS", seconds)
        found = agent.run("search_files", **args)
        assert found.endswith(
            f"[stopped after {seconds:g} seconds: not everything was searched; narrow the search or "
            "simplify the pattern]"
        )
        if found.startswith("1-first"):
            return found
    raise AssertionError("not even the first file was searched")


@pytest.mark.req("L3")
@pytest.mark.parametrize(
    ("pattern", "first", "second"),
    [
        ("(a+)+$", "aaa", "a" * 64 + "!"),
        (".*foo.*bar.*baz", "foo bar baz", "foo bar " * 15_000),
        ("(x+x+)+y", "xxy", "x" * 64),
    ],
)
def test_a_pattern_that_takes_forever_is_stopped_and_what_it_found_is_shown(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, first: str, second: str
) -> None:
    (tmp_path / "1-first").write_text(first)
    (tmp_path / "2-second").write_text(second)
    found = searched(agent, monkeypatch, pattern=pattern)
    assert found.startswith(f"1-first:1: {first}\n")
    assert agent.run("search_files", pattern="^...", files="1*") == f"1-first:1: {first}"


def test_a_time_limit_ends_a_search_that_takes_forever(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 64 + "!")
    agent.manager._timeout = 0.3
    assert "did not finish within 0.3 seconds" in agent.error("search_files", pattern="(a+)+$")
    agent.manager._timeout = 120.0
    assert agent.run("search_files", pattern="!$").startswith("a:1: aaa")


def test_patterns_for_names_are_matched_within_the_time_limit(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / ("a" * 250)).write_text("text")
    (tmp_path / "b.py").write_text("text")
    for pattern in ("*a" * 2_000 + "b", "[", "[!" * 500, "**/" * 500):
        assert agent.run("list_files", pattern=pattern) == "[nothing]"
        assert agent.run("search_files", pattern="t", files=pattern) == "[no hit]"
    assert agent.run("list_files", pattern="*.py") == "b.py\t4"


def test_a_long_list_says_how_much_is_missing(agent: Agent, tmp_path: Path) -> None:
    for number in range(2_003):
        (tmp_path / f"{number:04}").touch()
    assert agent.run("list_files", recursive=True).split("\n")[1999:] == ["1999\t0", "[3 more]"]
    (tmp_path / "hits").write_text("hit\n" * 300)
    lines = agent.run("search_files", pattern="hit").split("\n")
    assert lines[199:] == ["hits:200: hit", "[200 hits; narrow the search for the others]"]


def test_files_of_turnstate_are_not_searched(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not a secret")
    (tmp_path / "own" / ".openstarry" / "snapshots").mkdir(parents=True)
    (tmp_path / "own" / ".openstarry" / "snapshots" / "1.json").write_text("secret")
    make(tmp_path / "shadow", About(work_tree=b"secret"))
    (tmp_path / "shadow" / "repository" / "refs" / "x").write_text("secret")
    assert agent.run("search_files", pattern="secret") == "other.txt:1: not a secret"


@pytest.mark.req("L3")
@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git",
        "a/b/.git/config",
        "sub/.git",
        ".GIT/config",
        ".Git./config",
        ".git /config",
        ".git::$INDEX_ALLOCATION/config",
        ".g\u200cit/config",
        "git~1/config",
        "a/../.git/config",
    ],
)
def test_no_tool_writes_to_a_git_folder(agent: Agent, tmp_path: Path, path: str) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "config").write_text("[core]\n")
    assert "belongs to git" in agent.error("write_file", path=path, content="#!/bin/sh\n")
    assert "belongs to git" in agent.error("edit_file", path=path, old="[core]", new="[alias]")
    assert agent.tracking.records == {}
    assert sorted(one.name for one in tmp_path.rglob("*")) == [".git", "config", "hooks"]
    assert agent.run("read_file", path=".git/config") == "     1\t[core]"


def test_names_that_only_begin_like_git_are_written(agent: Agent, tmp_path: Path) -> None:
    for path in (".gitignore", ".gitattributes", ".github/workflows/x.yml", "git/x", "x.git/y", "..git"):
        agent.run("write_file", path=path, content="x\n")
        assert (tmp_path / path).read_text() == "x\n"
