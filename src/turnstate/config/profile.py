"""Agents as configuration: a file per agent with its prompt, model, tools, sticky files, servers and hooks.

    # .turnstate/agents/keeper.toml
    prompt = "You keep a lighthouse."
    model = "claude-sonnet-5-5"
    tools = ["read_file", "search_files", "@tickets"]
    sticky = ["README.md", "docs/*.md"]

    [mcp.tickets]
    url = "https://mcp.example.com/mcp"

A workspace keeps its agents in ``.turnstate/agents``, the user in ``agents`` in ``TURNSTATE_HOME``. If both
have an agent with the same name, the workspace's is used. An agent of a workspace can be used only after the
user has approved its file. A profile implements the `Agents` protocol that `ConversationState` attaches.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from .. import catalog
from ..agent import Limits
from ..catalog import Prices
from ..context.policy import Policy
from ..errors import InputError, UnknownName
from ..home import Home
from ..session import Recall
from ..tokens import counter
from ..tools import McpServer, Rule
from ..value import TOKENS, check_number, check_whole
from .source import ConfigFile, Place, checked, read, read_folder, suggestion
from .trust import NotTrusted, Trust

AGENTS_FOLDER = ".turnstate", "agents"
"""The agents' folder in a workspace; in ``TURNSTATE_HOME`` it is ``agents``."""

HOOK_SECONDS = 10.0
MOST_HOOK_SECONDS = 600.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}").fullmatch
"""Matches names that are valid file names on every system, including case-insensitive ones."""


class Sizes(Struct, frozen=True, kw_only=True):
    """The token sizes of a request; a value that is set overrides the catalog of models."""

    window: int | None = None
    output: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "output"):
            if (value := getattr(self, name)) is not None:
                check_whole(f"budget.{name}", value, least=0 if name == "output" else 1, most=TOKENS)


class CommandSettings(Struct, frozen=True, kw_only=True):
    """What commands and hooks get: environment variables besides the usual ones, by name or pattern."""

    variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.variables:
            if not name or "=" in name:
                raise InputError(f"commands.variables: {name!r:.60} is not the name of a variable")


class OwnModel(Struct, frozen=True, kw_only=True):
    """A model that the catalog does not list, or lists with other figures."""

    context_window: int
    output_limit: int | None = None
    counter: str = ""
    prices: Prices | None = None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_whole("models.context_window", self.context_window, least=1, most=TOKENS)
        if self.output_limit is not None:
            check_whole("models.output_limit", self.output_limit, least=1, most=self.context_window)
        if self.counter:
            counter(self.counter)

    def register(self, name: str) -> None:
        """Add the model to the catalog of this process."""
        catalog.register(name, **{field: getattr(self, field) for field in self.__struct_fields__})


class HookCommand(Struct, frozen=True, kw_only=True):
    """A command that runs at a step; ``tools`` are name patterns of the tools whose calls it gets."""

    command: str
    args: tuple[str, ...] = ()
    seconds: float = HOOK_SECONDS
    tools: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("a hook needs a command")
        check_number("hooks.seconds", self.seconds, least=0, most=MOST_HOOK_SECONDS, above=True)


class HookCommands(Struct, frozen=True, kw_only=True):
    """The commands for each step of an agent."""

    before_request: tuple[HookCommand, ...] = ()
    after_reply: tuple[HookCommand, ...] = ()
    before_tool: tuple[HookCommand, ...] = ()
    after_tool: tuple[HookCommand, ...] = ()

    def __add__(self, other: HookCommands) -> HookCommands:
        """Return the commands of both, those of `self` first."""
        both = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return HookCommands(**both)


class AgentProfile(Struct, frozen=True, kw_only=True):
    """An agent as its file describes it; `ConversationState.attach` accepts it as ``agents``."""

    name: str = ""
    description: str = ""
    prompt: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ("*",)
    sticky: tuple[str, ...] = ()
    budget: Sizes = Sizes()
    limits: Limits | None = None
    mcp: tuple[McpServer, ...] = ()
    hooks: HookCommands = HookCommands()
    approve: tuple[Rule, ...] = ()

    @property
    def active(self) -> str:
        """The name of the active agent, which is this one."""
        return self.name

    @property
    def context_paths(self) -> tuple[str, ...]:
        """The sticky files, folders and patterns."""
        return self.sticky


class AgentState(Struct, frozen=True):
    """An agent in a list: ``ready``, ``not approved``, or ``invalid`` with the reason as its description."""

    name: str
    state: Literal["ready", "not approved", "invalid"]
    description: str = ""
    file: str = ""


def agents(folder: Path, home: Home) -> list[AgentState]:
    """Return the agents of a workspace and of the user, including those that cannot be used."""
    return [_state(place, name, folder, home) for place, name in agent_files(folder, home)]


def _state(place: Place, name: str, folder: Path, home: Home) -> AgentState:
    try:
        file = agent_file(place, name, folder, home)
        if file is None:
            return AgentState(name, "invalid", "the file was deleted")
        profile = profile_of(file)
    except InputError as error:
        return AgentState(name, "invalid", str(error))
    known = place == "user" or Trust(home).approves(file.path, file.content)
    return AgentState(name, "ready" if known else "not approved", profile.description, str(file.path))


def agent_files(folder: Path, home: Home) -> list[tuple[Place, str]]:
    """Return the agents of a workspace and of the user by the names of their files."""
    workspace = read_folder(folder, *AGENTS_FOLDER, place="workspace")
    own = read_folder(home.path, "agents", place="user")
    return [*(("workspace", name) for name in workspace), *(("user", name) for name in own)]


def agent_file(place: Place, name: str, folder: Path, home: Home) -> ConfigFile | None:
    """Return the file of an agent, or None if there is none."""
    if not _NAME(name):
        raise InputError(f"{name!r:.80} cannot be the name of an agent: use 1 to 64 of a-z, 0-9, _ and -")
    if place == "workspace":
        return read(folder, *AGENTS_FOLDER, f"{name}.toml", place=place)
    return read(home.path, "agents", f"{name}.toml", place=place)


def load_profile(name: str, folder: Path | None = None, *, home: Home | None = None) -> AgentProfile:
    """Return the named agent; raise `NotTrusted` if it belongs to a workspace and is not approved."""
    folder, home = folder or Path.cwd(), home or Home.from_environment()
    places: tuple[Place, ...] = ("workspace", "user")
    file = next((one for place in places if (one := agent_file(place, name, folder, home))), None)
    if file is None:
        names = sorted({known for _, known in agent_files(folder, home)})
        advice = suggestion(name, names) or f"; there are {', '.join(names) or 'none'}"
        raise UnknownName(f"no agent is called {name!r:.60}{advice}")
    if file.place == "workspace" and not Trust(home).approves(file.path, file.content):
        raise NotTrusted(
            f"the agent {name} of this workspace has not been approved; look at {file.path} and run: "
            "turnstate config trust"
        )
    return profile_of(file)


def profile_of(file: ConfigFile) -> AgentProfile:
    """Return the agent that a file describes."""
    document = file.document()
    if "name" in document:
        raise InputError(f"{file.name}: an agent has the name of its file")
    if "mcp" in document:
        document["mcp"] = _named_servers(document["mcp"], file.name)
    return checked({**document, "name": file.path.stem}, AgentProfile, where=file.name)


def servers(table: Any, *, where: str = "mcp") -> tuple[McpServer, ...]:
    """Return the servers of a table ``[mcp.NAME]``."""
    named = _named_servers(table, where)
    return checked({"mcp": named}, _Servers, where=where).mcp


def rules(table: Any, *, where: str = "approve") -> tuple[Rule, ...]:
    """Return the rules of a list ``[[approve]]``."""
    return checked({"approve": table}, _Rules, where=where).approve


def check_table(name: str, table: Any, *, where: str) -> None:
    """Raise `InputError` if a table of a settings file has unknown keys or wrong values."""
    match name:
        case "mcp":
            servers(table, where=where)
        case "approve":
            rules(table, where=where)
        case "models":
            own_models(table, where=where)
        case _:
            kinds: dict[str, Any] = {
                "budget": Sizes,
                "policy": Policy,
                "recall": Recall,
                "limits": Limits,
                "commands": CommandSettings,
                "hooks": HookCommands,
            }
            kind = kinds[name]
            checked(_as_table(table, name, where), kind, where=f"{where}: [{name}]")


def own_models(table: Any, *, where: str = "models") -> dict[str, OwnModel]:
    """Read the models of a settings file by name."""
    return checked(_as_table(table, "models", where), dict[str, OwnModel], where=f"{where}: [models]")


class _Servers(Struct, frozen=True):
    mcp: tuple[McpServer, ...]


class _Rules(Struct, frozen=True):
    approve: tuple[Rule, ...]


def _named_servers(table: Any, where: str) -> list[dict[str, Any]]:
    """Return the tables of servers with their keys added as names."""
    found = list[dict[str, Any]]()
    for name, server in _as_table(table, "mcp", where).items():
        if "name" in _as_table(server, f"mcp.{name}", where):
            raise InputError(f"{where}: a server has the name of its table, [mcp.NAME]")
        found.append({**server, "name": name})
    return found


def _as_table(value: Any, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name} must be a table: [{name}]")
    return value
