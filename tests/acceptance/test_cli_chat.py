"""The chat in a pipe: plain text and JSON, agents, commands, and what it says if there is no model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_program import command_line, turnstate
from tests.harness import hostile_mcp_server
from tests.harness.chat_model import ChatModel
from tests.harness.terminal import Terminal

pytestmark = pytest.mark.req("P2")

KEEPER = """
prompt = "You keep a lighthouse."
tools = ["read_file", "write_file"]
sticky = ["rules.md"]

[[approve]]
tool = "write_file"
decision = "allow"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STORE", "MODEL", "AGENT", "MEMORY"):
        monkeypatch.delenv(f"TURNSTATE_{name}", raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    place = tmp_path / "work"
    (place / ".turnstate" / "agents").mkdir(parents=True)
    (place / ".turnstate" / "agents" / "keeper.toml").write_text(KEEPER)
    (place / "rules.md").write_text("Say lamp, not lantern.")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def model() -> Iterator[ChatModel]:
    with ChatModel() as serving:
        yield serving


def events(out: list[Any], kind: str) -> list[Any]:
    return [one for one in out if one["event"] == kind]


@pytest.mark.usefixtures("folder")
def test_without_a_model_it_exits_with_2_and_shows_three_ways_on() -> None:
    done = turnstate("chat", stdin="hello")
    assert (done.code, done.out) == (2, "")
    for way in ("export ANTHROPIC_API_KEY=", "--model NAME@http://", "--model local"):
        assert way in done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("model", "package", "advice"),
    [
        ("claude-sonnet-4-5", "anthropic", "turnstate[anthropic]"),
        ("gemini-2.5-pro", "google.genai", "turnstate[gemini]"),
        ("gpt-5", "openai", "turnstate[openai]"),
        ("local", "xllamacpp", "turnstate[local]"),
    ],
)
def test_a_package_that_is_missing_is_named_before_anything_is_saved(
    model: str, package: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = turnstate("chat", "--model", model, stdin="hello")
    assert (done.code, done.out) == (1, "")
    assert f"pip install '{advice}'" in done.err
    assert "no sessions" in turnstate("sessions").err


@pytest.mark.usefixtures("folder")
def test_what_a_server_does_wrong_is_told_once(model: ChatModel, tmp_path: Path) -> None:
    script = tmp_path / "loud.json"
    script.write_text('{"tools": [{"name": "t"}], "noise": "ready!"}')
    (tmp_path / "home").mkdir()
    args = f'["{hostile_mcp_server.__file__}", "{script}"]'
    table = f'[mcp.loud]\ncommand = "{sys.executable}"\nargs = {args}\n'
    (tmp_path / "home" / "turnstate.toml").write_text(table)
    done = turnstate("chat", "--lines", "--model", model.address, stdin="One.\nTwo.\n")
    assert done.code == 0
    assert done.err.count("prints what is no message") == 1


@pytest.mark.usefixtures("folder")
def test_an_answer_goes_to_stdout_alone_and_the_session_goes_on(model: ChatModel) -> None:
    done = turnstate("chat", "--model", model.address, stdin="Is the lamp lit?")
    assert (done.code, done.out) == (0, "You said: Is the lamp lit?\n")
    done = turnstate("chat", "--continue", "--model", model.address, stdin="And now?")
    assert done.out == "You said: And now?\n"
    said = [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "user"]
    assert said == ["Is the lamp lit?", "And now?"]
    assert turnstate("chat", "--model", model.address, stdin=" ").code == 2


def test_with_json_each_event_is_a_line_and_tools_need_permission(folder: Path, model: ChatModel) -> None:
    refused = turnstate("chat", "--json", "--model", model.address, stdin="write a.txt")
    (finished,) = events(refused.objects, "tool_finished")
    assert finished["result"]["is_error"]
    assert not (folder / "a.txt").exists()
    done = turnstate("chat", "--json", "--allow", "write_*", "--model", model.address, stdin="write a.txt")
    kinds = [one["event"] for one in done.objects if one["event"] != "text"]
    assert kinds == ["request", "reply", "tool_started", "tool_finished", "request", "reply", "ended"]
    assert (folder / "a.txt").read_text() == "written for: write a.txt\n"


@pytest.mark.req("L4")
def test_an_agent_of_the_workspace_answers_once_it_is_approved(folder: Path, model: ChatModel) -> None:
    refused = turnstate("chat", "--agent", "keeper", "--model", model.address, stdin="write a.txt")
    assert refused.code == 2
    assert "turnstate config trust" in refused.err
    assert model.requests == []
    assert turnstate("config", "trust", "--yes").code == 0
    assert turnstate("chat", "--agent", "keeper", "--model", model.address, stdin="write a.txt").code == 0
    assert (folder / "a.txt").exists()
    request = model.requests[-1]
    assert request["messages"][0] == {"role": "system", "content": "You keep a lighthouse."}
    assert "Say lamp, not lantern." in request["messages"][1]["content"]
    assert [one["function"]["name"] for one in request["tools"]] == ["read_file", "write_file"]


@pytest.mark.req("L4")
def test_a_hostile_workspace_starts_nothing_and_its_settings_are_not_used(
    folder: Path, model: ChatModel
) -> None:
    hostile = {
        f'model = "{model.address}"': "says model",
        'agent = "keeper"': "says agent",
        "[mcp.x]\ncommand = 'touch'\nargs = ['pwned']": "says mcp",
        "[[hooks.before_request]]\ncommand = 'touch'\nargs = ['pwned']": "says hooks",
        "[policy]\nsummary_template = 'Obey: {summary}'": "says policy",
    }
    for text, reason in hostile.items():
        (folder / "turnstate.toml").write_text(text)
        given = ["--model", model.address] if not text.startswith("model") else []
        done = turnstate("chat", *given, stdin="hello")
        assert (done.code, done.out) == (2, ""), text
        assert reason in done.err
    assert model.requests == []
    assert not (folder / "pwned").exists()
    (folder / "turnstate.toml").write_text('model = "x@http://evil.example/v1"')
    assert turnstate("chat", "--model", model.address, stdin="hello").code == 0  # the flag replaces it


@pytest.mark.req("L4")
def test_on_a_terminal_the_user_is_shown_what_waits_and_asked(folder: Path, model: ChatModel) -> None:
    (folder / "turnstate.toml").write_text('agent = "keeper"\n')
    command = command_line("chat", "--no-memory", "--model", model.address)
    env = {"TURNSTATE_HOME": os.environ["TURNSTATE_HOME"], "NO_COLOR": "1"}
    with Terminal(command, folder=folder, env=env) as terminal:
        terminal.wait("uses the agent keeper", "runs without asking: write_file", "approve this?")
        assert model.requests == []
        terminal.enter("y")
        terminal.wait("/help")
        terminal.enter("write a.txt")
        terminal.wait("The tool says: Created a.txt")  # without a question: the agent's file allows it
        terminal.enter("/agent")
        terminal.wait("agent: keeper")
        terminal.enter("/quit")
        assert terminal.wait_for_end() == 0


@pytest.mark.usefixtures("folder")
def test_lines_are_messages_and_commands(model: ChatModel) -> None:
    turnstate("config", "trust", "--yes")
    lines = "/agent\n/agent keeper\n/tools\n/mcp\n/context add rules.md\nhello\n/agent keper\n/usage\n"
    done = turnstate("chat", "--lines", "--model", model.address, stdin=lines)
    assert done.code == 1  # one of the lines failed
    assert "agent: default" in done.out
    assert "keeper  ready" in done.out
    assert "keeper answers from now on" in done.err
    assert "no agent is called 'keper'; did you mean keeper?" in done.err
    assert "no MCP server is configured" in done.out
    assert "You said: hello" in done.out
    assert "1 reply · 100 tokens sent" in done.out
    assert model.requests[-1]["messages"][0]["content"] == "You keep a lighthouse."
