"""Agents as files: which one is meant, what it may say, and that a workspace's waits for approval."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from turnstate.config import AgentProfile, HookCommand, HookCommands, NotTrusted, Trust, load_profile
from turnstate.config.effects import effects, shown_url
from turnstate.conversation import ConversationState
from turnstate.conversation.environment import System
from turnstate.errors import InputError, UnknownName
from turnstate.home import Home
from turnstate.tools import McpServer, Rule

KEEPER = """
description = "Keeps the lighthouse."
prompt = "You keep a lighthouse."
model = "claude-sonnet-4-5"
tools = ["read_file", "@tickets"]
sticky = ["README.md"]

[budget]
window = 9000

[limits]
rounds = 7

[mcp.tickets]
command = "./server"
args = ["--token", "t0p"]
env = { TICKETS_TOKEN = "s3cret" }

[[approve]]
tool = "write_file"
decision = "allow"
path = "docs/*"

[[hooks.before_tool]]
command = "./check"
seconds = 2
tools = ["run_*"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    (home.make() / "agents").mkdir()
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / ".turnstate" / "agents").mkdir(parents=True)
    (place / "README.md").write_text("The lamp is lit at dusk.")
    return place


def write(folder: Path, text: str, name: str = "keeper") -> Path:
    path = folder / ".turnstate" / "agents" / f"{name}.toml"
    path.write_text(text)
    return path


@pytest.mark.req("L4")
def test_an_agent_of_a_workspace_is_used_once_its_file_is_approved(folder: Path, home: Home) -> None:
    path = write(folder, KEEPER)
    with pytest.raises(NotTrusted, match="the agent keeper of this workspace has not been approved"):
        load_profile("keeper", folder, home=home)
    Trust(home).approve(path, path.read_bytes())
    profile = load_profile("keeper", folder, home=home)
    assert profile.mcp == (
        McpServer(
            name="tickets", command="./server", args=("--token", "t0p"), env={"TICKETS_TOKEN": "s3cret"}
        ),
    )
    assert profile.approve == (Rule("write_file", "allow", "docs/*"),)
    assert profile.hooks.before_tool == (HookCommand(command="./check", seconds=2, tools=("run_*",)),)
    assert (profile.name, profile.budget.window, profile.limits and profile.limits.rounds) == (
        "keeper",
        9000,
        7,
    )
    path.write_text(KEEPER.replace("lighthouse", "light house"))
    with pytest.raises(NotTrusted):
        load_profile("keeper", folder, home=home)


def test_an_agent_of_the_user_needs_no_approval_and_gives_way_to_the_workspace(
    folder: Path, home: Home
) -> None:
    (home.path / "agents" / "keeper.toml").write_text('prompt = "mine"')
    assert load_profile("keeper", folder, home=home) == AgentProfile(name="keeper", prompt="mine")
    path = write(folder, 'prompt = "theirs"')
    with pytest.raises(NotTrusted):  # not silently the other one
        load_profile("keeper", folder, home=home)
    Trust(home).approve(path, path.read_bytes())
    assert load_profile("keeper", folder, home=home).prompt == "theirs"


def test_a_profile_is_what_a_conversation_attaches(folder: Path) -> None:
    profile = AgentProfile(name="keeper", prompt="You keep a lighthouse.", sticky=("README.md",))
    state = ConversationState(agents=profile, os=System(folder))
    assert state.system == "You keep a lighthouse."
    gathered = state.sticky()
    assert gathered
    assert "The lamp is lit at dusk." in (gathered.text or "")


def test_names_that_are_no_names_and_unknown_ones_are_told(folder: Path, home: Home) -> None:
    write(folder, "", "keeper")
    write(folder, "", "Keeper")  # the same file on some systems, so it has no name
    for name in ("../keeper", "Keeper", "a/b", "", ".", "keeper\0", "x" * 65, "-x"):
        with pytest.raises(InputError, match="cannot be the name of an agent"):
            load_profile(name, folder, home=home)
    with pytest.raises(UnknownName, match="did you mean keeper"):
        load_profile("keper", folder, home=home)
    with pytest.raises(UnknownName, match="there are none"):
        load_profile("keeper", folder / "elsewhere", home=home)


def test_wrong_files_are_errors_that_name_file_and_key(folder: Path, home: Home) -> None:
    cases = {
        'promt = "x"': "agents/keeper.toml: there is no setting 'promt'; did you mean prompt?",
        "tools = 5": "agents/keeper.toml: tools: expected `array`",
        'name = "other"': "agents/keeper.toml: an agent has the name of its file",
        "[limits]\nround = 1": "there is no setting 'limits.round'; did you mean rounds?",
        "[[hooks.before_tool]]\ncommand = 'x'\nseconds = 0": "hooks.seconds = 0",
        "mcp = 3": "mcp must be a table",
        "[mcp]\na = 3": "mcp.a must be a table",
    }
    for text, message in cases.items():
        path = write(folder, text)
        Trust(home).approve(path, path.read_bytes())
        with pytest.raises(InputError) as caught:
            load_profile("keeper", folder, home=home)
        assert message in str(caught.value), str(caught.value)


@pytest.mark.req("L4")
def test_the_effects_name_each_program_address_and_permission_and_no_secret(folder: Path) -> None:
    (folder / "server").touch()
    document = tomllib.loads(KEEPER + '[mcp.far]\nurl = "https://me:pw@far.example/mcp?token=s3cret"\n')
    remark = "(the content of ./server is not part of your approval)"
    lines = [*effects(document, folder)]
    assert lines[:5] == [
        f"starts the MCP server tickets: ./server --token t0p, with TICKETS_TOKEN set {remark}",
        "connects to the MCP server far: https://far.example/mcp",
        "runs before each call of run_*: ./check",
        "runs without asking: write_file on docs/*",
        "uses the model claude-sonnet-4-5",
    ]
    assert "s3cret" not in "".join(lines)
    assert "pw" not in "".join(lines)
    assert shown_url("builtin:postgresql://a:b@h/x?y") == "builtin:postgresql://h/x"


def test_hooks_of_two_sources_add_up() -> None:
    one, two = HookCommand(command="one"), HookCommand(command="two")
    both = HookCommands(before_tool=(one,)) + HookCommands(before_tool=(two,), after_reply=(two,))
    assert both == HookCommands(before_tool=(one, two), after_reply=(two,))
