"""Builds an agent from its configuration: model, tools, MCP servers, approvals, hooks, sticky files.

    async with load_agent("keeper", session) as agent:
        async for event in agent.run("Is the lamp lit?"):
            …

The agent's file overrides `Settings`. Lists are combined: servers, rules and hooks of both apply. Servers run
for the duration of the block.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from .. import models
from ..agent import Agent
from ..catalog import named
from ..checkpoints import CheckpointManager
from ..context.policy import Budget
from ..errors import InputError, ModelFailed
from ..home import Home
from ..models import Endpoint, Model
from ..models.endpoint import LOCAL, without_secrets
from ..session import Session
from ..sticky import ContextManager, Workspace
from ..tools import (
    FILE_TOOLS,
    Approvals,
    McpServer,
    McpServers,
    Rule,
    Tool,
    ToolManager,
    run_command,
    session_tools,
    tool,
)
from ..tools.approval import Ask
from .binding import bound
from .hooks import command_hooks
from .profile import AgentProfile, load_profile
from .settings import Settings
from .source import suggestion
from .table import KEY_VARIABLES

BUILT_IN_AGENT = AgentProfile(name="default", description="All tools, and no instructions of its own.")
"""The agent that is used if none is named and the settings name none either."""


class Equipment:
    """What an agent needs in a folder, for any session: its tools, running servers, rules and hooks."""

    def __init__(
        self,
        profile: AgentProfile,
        settings: Settings,
        tools: Iterable[Tool],
        approvals: Approvals,
        folder: Path,
        home: Home,
    ) -> None:
        self.profile, self.settings, self._folder = profile, settings, folder
        servers = {
            name: replace(
                one, cwd=str(folder / (one.cwd or ""))
            )  # relative to the workspace, not to the current folder
            for name, one in (settings.servers | {one.name: one for one in profile.mcp}).items()
        }
        self._variables = settings.commands.variables
        self.tools = _chosen(
            profile, tools, servers, approvals=approvals, workspace=folder, variables=self._variables
        )
        self.servers = McpServers(servers.values(), self.tools, home=home)
        self._hooks = settings.hooks + profile.hooks
        self._limits = profile.limits or settings.limits
        self._sizes = profile.budget, settings.sizes

    def budget(self, model: str) -> Budget:
        """Return the budget for a model: from the agent's file, else the settings, else the catalog."""
        sizes, known = self._sizes, Budget.of(named(model))
        window = next((one.window for one in sizes if one.window is not None), known.window)
        output = next((one.output for one in sizes if one.output is not None), None)
        if output is not None:
            return Budget(window, output=output)
        return Budget(window, output=min(known.output, window // 2), capped=known.capped)

    def agent(
        self,
        session: Session,
        model: Model,
        *,
        checkpoints: CheckpointManager | None = None,
        context: ContextManager | None = None,
    ) -> Agent:
        """Return the agent for a session; ``context`` overrides the sticky files of the agent's file."""
        return Agent(
            model=model,
            session=session,
            tools=self.tools,
            budget=self.budget(model.name),
            limits=self._limits,
            hooks=command_hooks(
                self._hooks, session=session.id, folder=self._folder, variables=self._variables
            ),
            checkpoints=checkpoints,
            context=context or self._sticky(model),
        )

    def _sticky(self, model: Model) -> ContextManager | None:
        if not self.profile.sticky:
            return None
        context = ContextManager(Workspace(root=self._folder.absolute(), home=Path.home()))
        context.for_agent(self.profile.name, self.profile.sticky)
        context.for_window(named(model.name).context_window)
        return context


@asynccontextmanager
async def equipped(
    agent: str | AgentProfile | None,
    *,
    folder: Path | None = None,
    settings: Settings | None = None,
    home: Home | None = None,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    rules: Iterable[Rule] = (),
    ask: Ask | None = None,
) -> AsyncIterator[Equipment]:
    """Equip an agent and start its servers; without a name, use the agent that the settings name."""
    folder, home = folder or Path.cwd(), home or Home.from_environment()
    settings = settings or Settings.load(folder, home=home)
    settings.register_models()
    profile = agent if isinstance(agent, AgentProfile) else chosen_agent(agent, settings, folder, home)
    every = (*settings.rules, *profile.approve, *rules)
    approvals = Approvals(every, ask=ask, project=folder, home=home)
    own = [one if isinstance(one, Tool) else tool(one) for one in tools]
    equipment = Equipment(profile, settings, [*FILE_TOOLS, run_command, *own], approvals, folder, home)
    async with equipment.servers:  # by now everything that the files ask for is approved
        yield equipment


@asynccontextmanager
async def load_agent(
    agent: str | AgentProfile | None,
    session: Session,
    *,
    folder: Path | None = None,
    settings: Settings | None = None,
    home: Home | None = None,
    model: Model | None = None,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    ask: Ask | None = None,
    checkpoints: CheckpointManager | None = None,
) -> AsyncIterator[Agent]:
    """Prepare an agent for a session; without a name, use the agent that the settings name.

    ``tools`` are the caller's functions, ``model`` replaces the configured model, and ``ask`` is called when
    a tool call needs the user's approval.
    """
    own: list[Tool | Callable[..., Any]] = [*session_tools(session), *tools]
    async with AsyncExitStack() as stack:
        equipment = await stack.enter_async_context(
            equipped(agent, folder=folder, settings=settings, home=home, tools=own, ask=ask)
        )
        profile = equipment.profile
        if model is None:
            binding = bound(session.info, home or Home.from_environment())
            said = equipment.settings.flag("model")
            address = said or equipment.settings.chosen("model", profile.model)
            if binding is not None and not said:  # it never goes elsewhere because of a file or a variable
                made = connect(binding.address, equipment.settings, endpoint=binding.endpoint)
            else:
                made = connect(address, equipment.settings)
            model = await stack.enter_async_context(made)
        if profile.prompt is not None and await session.system() != profile.prompt:
            await session.set_system(profile.prompt)  # a change invalidates the prompt cache
        yield equipment.agent(session, model, checkpoints=checkpoints)


def connect(
    address: str | None, settings: Settings, *, endpoint: Endpoint | None = None
) -> models.ProviderModel:
    """Return the model of an address; use the key in the settings if the environment has none.

    With an `endpoint`, raise `ModelFailed` if the SDK would send requests anywhere else.
    """
    if not address:
        raise InputError(
            "no model is configured; name one with --model, TURNSTATE_MODEL or model in turnstate.toml"
        )
    if address == LOCAL:
        from ..models.local import local  # deferred: it loads the weights of the model

        return local()
    place = endpoint or models.endpoint_of(address)
    owner = "gemini" if place.provider == "vertex" else place.provider
    key = None if os.environ.get(KEY_VARIABLES[owner]) else settings.key(owner)
    model = models.connect(address, api_key=key, endpoint=place)
    # An SDK reads more than its variable, and writes URLs in its own way.
    if model.url and without_secrets(model.url) != without_secrets(place.url):
        raise ModelFailed(
            f"the SDK of {place.provider} would send {model.name} to {without_secrets(model.url)} instead of "
            f"{place}; set its variable for the base URL, or name the model as NAME@URL"
        )
    return model


def check_installed(address: str) -> None:
    """Raise `ModelFailed` if a model's address needs a package that is not installed; import nothing."""
    if address == LOCAL:
        from ..models.local import weights  # deferred, as above

        weights()
    else:
        models.check_installed(address)


def chosen_agent(name: str | None, settings: Settings, folder: Path, home: Home) -> AgentProfile:
    """Return the named agent, else the one that the settings name, else the built-in one."""
    name = name or settings.text("agent")
    return load_profile(name, folder, home=home) if name else BUILT_IN_AGENT


class _ChosenTools(ToolManager):
    """The tools that an agent's file selects; servers may offer more, and change what they offer."""

    def __init__(self, patterns: tuple[str, ...], **settings: Any) -> None:
        self._patterns = patterns
        super().__init__(**settings)

    def add(self, added: Tool | Callable[..., Any]) -> Tool:
        """Add a tool if the file selects it."""
        made = added if isinstance(added, Tool) else tool(added)
        return super().add(made) if self._chooses(made) else made

    def _chooses(self, made: Tool) -> bool:
        origin = made.origin
        kind = f"@{origin.server if origin.kind == 'mcp' else origin.kind}"
        names = [one for one in (made.name, made.former_name, kind) if one]
        return any(fnmatchcase(name, one) for one in self._patterns for name in names)


def _chosen(
    profile: AgentProfile, tools: Iterable[Tool], servers: dict[str, McpServer], **settings: Any
) -> ToolManager:
    """Return the tools that the agent selects; raise `InputError` for a pattern that can match no tool."""
    every = tuple(tools)
    names = [*(one.name for one in every), "@builtin", "@custom", *(f"@{name}" for name in servers)]
    prefixes = tuple(f"{name}__" for name in servers)
    for pattern in profile.tools:
        if any(fnmatchcase(name, pattern) for name in names) or pattern.startswith(prefixes):
            continue
        advice = suggestion(pattern, names) or f"; there are {', '.join(names)}"
        raise InputError(f"the agent {profile.name} wants the tool {pattern!r:.80}, which is unknown{advice}")
    return _ChosenTools(profile.tools, tools=every, **settings)
