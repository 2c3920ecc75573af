"""Calls are allowed, refused or asked about; what the user answered is remembered outside the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnstate import ToolCallRequest
from turnstate.errors import HomeUnusable
from turnstate.home import Home
from turnstate.tools import Approval, ApprovalRequest, Approvals, Rule, tool


@tool(path_of=("path",), changes_files=True)
def write(path: str) -> None:
    """Write."""


@tool(idempotent=True)
def look() -> None:
    """Look."""


@tool(path_of=("source", "target"))
def move(source: str, target: str) -> None:
    """Move a file."""


class User:
    """Answers questions, and counts them."""

    def __init__(self, answer: Approval) -> None:
        self.answer, self.asked = answer, list[ApprovalRequest]()

    async def __call__(self, question: ApprovalRequest) -> Approval:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answer


def refusal(approvals: Approvals, **args: Any) -> str:
    call = ToolCallRequest(name="write", args=args)
    return asyncio.run(approvals.refusal(write, call))


def test_without_rules_what_changes_nothing_runs_and_the_rest_is_asked_about() -> None:
    assert Approvals().decision(look, {}) == "allow"
    assert Approvals().decision(write, {"path": "a"}) == "ask"
    assert "no one to ask" in refusal(Approvals(), path="a")


def test_the_strictest_rule_that_matches_counts() -> None:
    rules = [Rule("*", "allow"), Rule("write", "deny", "secret/*"), Rule("write", "ask", "src/*")]
    approvals = Approvals(rules)
    cases = {
        "a": "allow",
        "src/a": "ask",
        "secret/a": "deny",
        "src/../secret/a": "deny",
        "./secret/a": "deny",
    }
    for path, decision in cases.items():
        assert approvals.decision(write, {"path": path}) == decision, path
    assert "not allowed" in refusal(approvals, path="secret/x")


def test_an_allowance_has_to_cover_all_paths_of_a_call_and_a_prohibition_one() -> None:
    approvals = Approvals([Rule("move", "allow", "src/*"), Rule("move", "deny", "secret/*")])
    cases = {"src/b": "allow", "lib/b": "ask", "secret/b": "deny"}
    for target, decision in cases.items():
        assert approvals.decision(move, {"source": "src/a", "target": target}) == decision, target


def test_an_answer_holds_once_for_the_session_for_the_project_or_always(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    here, there = tmp_path / "here", tmp_path / "there"
    questions = {"once": 2, "session": 1, "project": 1, "always": 1}
    elsewhere = {"once": 1, "session": 1, "project": 1, "always": 0}
    for scope, count in questions.items():
        user = User(Approval(allow=True, scope=scope))  # type: ignore[arg-type]
        approvals = Approvals(ask=user, project=here, home=home)
        for _ in range(2):
            assert refusal(approvals, path=scope) == ""
        assert len(user.asked) == count, scope
        again = User(Approval(allow=True))
        refusal(Approvals(ask=again, project=there, home=home), path=scope)
        assert len(again.asked) == elsewhere[scope], scope
    assert not list(here.parent.glob("here/*"))
    assert (home.path / "approvals.json").stat().st_mode & 0o077 == 0


def test_the_same_call_is_not_asked_about_again_whatever_its_paths_are(tmp_path: Path) -> None:
    for scope in ("session", "project", "always"):
        user = User(Approval(allow=True, scope=scope))
        approvals = Approvals(ask=user, project=tmp_path / scope, home=Home(tmp_path / f"home {scope}"))
        for source, target in [("a", "b/c"), ("[x]", "*"), ("a", "*")]:
            call = ToolCallRequest(name="move", args={"source": source, "target": target})
            assert asyncio.run(approvals.refusal(move, call)) == ""
        assert len(user.asked) == 2  # each path of the last one was approved before
        assert approvals.decision(move, {"source": "a", "target": "other"}) == "ask"
        assert approvals.decision(move, {"source": "x", "target": "a"}) == "ask"


def test_a_refusal_says_why_and_a_prohibition_is_not_lifted_by_an_answer() -> None:
    user = User(Approval(allow=False, reason="not on a Friday"))
    assert refusal(Approvals(ask=user), path="a") == "the user refused write: not on a Friday"
    yes = User(Approval(allow=True, scope="session"))
    approvals = Approvals([Rule("write", "deny", "b")], ask=yes)
    assert refusal(approvals, path="a") == ""
    assert "not allowed" in refusal(approvals, path="b")


def test_of_calls_that_wait_at_once_the_second_is_not_asked_about_again() -> None:
    async def both() -> int:
        user = User(Approval(allow=True, scope="session"))
        approvals = Approvals(ask=user)
        calls = [ToolCallRequest(name="write", args={"path": "a"}) for _ in range(2)]
        assert await asyncio.gather(*(approvals.refusal(write, one) for one in calls)) == ["", ""]
        return len(user.asked)

    assert asyncio.run(both()) == 1


def test_a_damaged_file_of_approvals_is_an_error_and_approves_nothing(tmp_path: Path) -> None:
    (tmp_path / "approvals.json").write_text('{"always": [{"tool": "*", "decision": "yes"}]}')
    with pytest.raises(HomeUnusable, match="correct it, or remove it"):
        refusal(Approvals(home=Home(tmp_path)), path="a")
