"""`context`, `tree`, `branch` and the HTML page of a long session say what the API says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import on_a_terminal, turnstate
from tests.acceptance.kept_sessions import answering, make, opened
from tests.acceptance.long_session import ID, LIMIT, make_long
from turnstate import Budget, Message, ToolCallRequest, ToolCallResult, ToolSpec
from turnstate.context.cut import Strategy
from turnstate.conversation import ToolOrigin
from turnstate.entry import Usage
from turnstate.log.operations import write
from turnstate.sticky import ContextManager

pytestmark = pytest.mark.req("P3")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the long session once."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "tree").mkdir()
    (folder / "tree/notes.txt").write_text("first\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNSTATE_HOME", str(folder / "home"))
        asyncio.run(make_long(f"sqlite:///{folder}/agent.db", folder / "tree"))
    return folder


@pytest.fixture
def long_store(kept: Path, url: str, tmp_path: Path) -> str:
    """Put a copy of the long session where the commands find it."""
    shutil.copy(kept / "agent.db", tmp_path / "agent.db")
    return url


def one(*arguments: object) -> dict[str, Any]:
    code, out, err = turnstate(*arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_context_is_that_of_the_window(long_store: str) -> None:
    for limit in (LIMIT, 40_000):
        found = one("context", ID, "--budget", limit, "--requests", 3)
        with opened(long_store) as sessions:
            session = sessions.open(ID)
            window, messages = session.preview(Budget(limit)), session.messages()
        assert (found["tokens"], found["messages"]) == (window.tokens, len(window.messages))
        assert {name: tokens for name, tokens in found["usage"].items() if tokens} == {
            name: tokens for name, tokens in window.report.usage.items() if tokens
        }
        assert sum(found["usage"].values()) == limit
        shown = {message.id for message in window.messages}
        assert found["left_out"] == sum(message.id not in shown for message in messages)
        assert [request["limit"] for request in found["requests"]] == [LIMIT] * 3
    found = one("context", ID)
    assert (found["limit"], found["limit_from"], len(found["requests"])) == (LIMIT, "the last decision", 10)
    assert Counter(decision["what"] for decision in found["decisions"]) == {"cut": 4, "compact": 2}


def test_the_tree_is_that_of_the_branches(long_store: str) -> None:
    found = one("tree", ID)
    with opened(long_store) as sessions:
        session = sessions.open(ID)
        branches, path = session.branches(), session.messages()
    assert [branch["id"] for branch in found["branches"]] == [branch.id for branch in branches]
    operations = Counter(branch["operation"] for branch in found["branches"])
    assert operations == {"create": 1, "tangent": 3, "restore": 1}
    marks = Counter(mark["what"] for branch in found["branches"] for mark in branch["marks"])
    assert marks == {"cut": 4, "compact": 2, "tangent": 3, "checkpoint": 2, "restore": 1}
    assert len(path) == 10_000
    assert sum(branch["messages"] for branch in found["branches"]) == 10_000 + 3 * 2 + 3 * 4
    text = turnstate("tree", ID).out
    for words in ("What is a module, by the way?", "Who wrote module 7?", "before the rewrite"):
        assert text.count(words) == 1
    assert text.count("●") == 1
    listed = [json.loads(line) for line in turnstate("branch", ID, "--json").out.splitlines()]
    assert [(branch["id"], branch["head"]) for branch in listed] == [(n, n == 3) for n in range(1, 6)]


def test_a_branch_is_shown_to_its_end(long_store: str) -> None:
    assert "That is beside the point." in turnstate("show", ID, "--branch", 2, "--last", 1).out
    with opened(long_store) as sessions:
        whole = sessions.open(ID).messages()
    (found,) = turnstate("show", ID, "--branch", 4, "--json").objects
    assert found["messages"][-2]["content"] == "Who wrote module 7?"
    assert [one["id"] for one in found["messages"][:-2]] == [message.id for message in whole[:6000]]
    assert "has no branch 9; there are 1, 2, 3, 4, 5" in turnstate("show", ID, "--branch", 9).err


def test_the_page_has_every_message_and_is_not_much_larger_than_the_json(
    long_store: str, tmp_path: Path
) -> None:
    assert turnstate("export", ID, "--format", "html", "-o", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<article ") == one("tree", ID)["seq"] - 13 + 3 * 2 + 3 * 4
    assert len(page) < 3 * len(turnstate("show", ID, "--json").out)
    written = re.findall(r"<code>([0-9a-f-]{36})</code>", page)
    assert len(set(written)) == len(written)
    with opened(long_store) as sessions:
        path = [message.id for message in sessions.open(ID).messages()]
    assert written[: len(path)] == path
    assert page.count('<div class="mark cut"') == 6
    assert page.count('class="cutline"') + page.count('class="asked"') == 5  # no request since the last cut
    code, _, err = turnstate("export", "--all", "--format", "html")
    assert code == 0, err
    make(long_store)
    assert "one page for one session; 2 were named" in turnstate("export", "--all", "--format", "html").err


def small(url: str) -> str:
    """Keep a session of three turns with a reported usage, and return its id."""
    with opened(url) as sessions:
        session = sessions.create(system="You help.", title="Small")
        for number in range(3):
            call = ToolCallRequest(name="ls", args={})
            session.append(Message.user(f"Question {number}"))
            session.window(Budget(8_000))
            session.append(Message.assistant(None, tool_calls=[call]))
            session.append(Message.tool([ToolCallResult(tool_call_id=call.id, result="x\n" * number)]))
            session.append(Message.assistant(f"Answer {number}"))
        return session.id


def test_branches_are_made_and_undone_on_the_command_line(url: str) -> None:
    id = small(url)
    with opened(url) as sessions:
        messages = sessions.open(id).messages()
        planned = sessions.open(id).preview_compact(strategy=Strategy(keep=1))
    compacted = one("compact", "last", "--keep", 1)
    assert (compacted["messages"], compacted["source"]) == (planned.messages, "digest")
    assert compacted["summary"] == planned.summary
    assert one("context", "last", "--budget", 8_000)["left_out"] == planned.messages
    assert one("undo", "last")["undone"] == "compact"
    preview = one("compact", "last", "--keep", 1, "--preview")
    assert preview == {name: value for name, value in compacted.items() if name != "head"}
    forked = one("fork", id, "--at", messages[3].id, "--name", "other")
    assert (forked["branch"], forked["operation"]) == (2, "fork")
    with opened(url) as sessions:
        assert sessions.open(id).messages() == messages[:4]
    assert "Question 2" in turnstate("show", id, "--branch", "1").out
    assert "Question 1" not in turnstate("show", id, "--branch", "other").out
    assert turnstate("undo", id).err == f"turnstate: session {id}: fork undone\n"
    rewound = turnstate("rewind", id, messages[1].id)  # inside a group of calls: the group leaves with it
    assert (rewound.code, "undo brings the rest back" in rewound.err) == (0, True)
    with opened(url) as sessions:
        assert sessions.open(id).messages() == messages[:1]
    assert turnstate("undo", id).code == 0
    with opened(url) as sessions:
        assert sessions.open(id).messages() == messages
    code, out, err = turnstate("undo", id)
    assert (code, out, "nothing to undo" in err) == (1, "", True)
    assert turnstate("rewind", id, "nowhere").code == turnstate("fork", id, "--at", "nowhere").code == 1
    assert "nothing to compact" in turnstate("compact", id, "--keep", 99).err


def test_what_a_provider_reported_is_marked_as_reported(url: str) -> None:
    id = small(url)
    with opened(url) as sessions:
        usage = Usage(input=321, output=7, cached=300, model="gpt-4o")
        sessions.open(id).operate(write(usage))
    found = one("context", id)
    assert found["requests"][-1]["reported"] == {"input": 321, "output": 7, "cached": 300}
    assert (found["limit_from"], found["reuse"] > 0.5) == ("gpt-4o", True)
    text = turnstate("context", id).out
    assert "cached (reported)" in text
    assert "; 93.5% cached, as reported\n" in text
    assert found["cached"] == 300 / 321
    assert found["cost"] == pytest.approx((21 * 2.5 + 300 * 1.25 + 7 * 10) / 1e6)
    assert "cost $0.0005 by the prices of 2" in text
    assert re.search(r"\b321 +300\n", text)


def test_a_session_without_a_budget_or_messages_has_a_context_and_a_tree(url: str) -> None:
    id = make(url)
    assert "no budget is known; pass --budget N" in turnstate("context", id).out
    assert turnstate("tree", id).out.splitlines()[1] == "1 branch · 0 messages · head at 0 of branch 1"
    assert turnstate("export", id, "--format", "html").code == 0


def test_a_terminal_gets_colors_and_a_pager_and_no_color_is_respected(url: str, tmp_path: Path) -> None:
    id = small(url)
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    plain = turnstate("tree", id).out
    assert "\x1b[" in on_a_terminal("context", id).err
    seen = on_a_terminal("tree", id, NO_COLOR="1").err
    assert "\x1b" not in seen
    assert seen.replace("\r\n", "\n") == plain
    answering("", "show", id, PAGER=str(pager), NO_COLOR="1", LINES="5")
    assert (tmp_path / "paged").read_text() == turnstate("show", id).out


LS = ToolSpec(name="ls", description="List a folder.", input_schema={"type": "object"})


def test_tools_and_sticky_files_that_the_log_knows_are_in_the_table(url: str, tmp_path: Path) -> None:
    id = small(url)
    (tmp_path / "notes.md").write_text("Always answer in one line.\n" * 20)
    with opened(url) as sessions:
        session = sessions.open(id)
        files = ContextManager()
        files.for_agent("coder", ["notes.md"])
        session.change_settings(context_manager=files, tools={ToolOrigin("builtin"): [LS]})
        state = session.conversation()
        budget = Budget(8_000)
        usage = session.preview(budget, tools=state.tool_specs, context=state.sticky()).report.usage
    found = one("context", id, "--budget", 8_000)["usage"]
    assert (usage["tools"] > 20, usage["context"] > 100) == (True, True)
    assert found["tools"] == usage["tools"]
    assert found["context"] == usage["context"]
