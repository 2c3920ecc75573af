"""Sub-agents: an agent that another agent calls as a tool.

Each call gets its own session, and the last reply in it is the result of the call. The id of that session is
derived from the call, so a call that was interrupted and is run again resumes its session: nothing in it is
done twice. The two sessions link to each other: the caller's in its state (namespace ``subagents``), the
sub-agent's in its metadata. A sub-agent is canceled and resumed together with the agent that called it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any

from ..context.policy import Budget
from ..errors import InputError
from ..message import ToolCallResult
from ..models import Model
from ..session import Session, SessionManager
from ..tools import Tool, ToolContext, ToolManager, tool
from ..value import check_kind
from .agent import Agent
from .events import Ended
from .hooks import Hooks
from .limits import Limits

TIMEOUT = 3_600.0
"""Seconds that a sub-agent may take."""

MAX_DEPTH = 4
"""Maximum depth of agents that call one another, including the first one."""

LONGEST_ID = 160
NAMESPACE = "subagents"


def subagent(
    sessions: SessionManager,
    *,
    model: Model,
    name: str = "delegate",
    description: str = "Give a task to another agent, which works on its own and answers once.",
    system: str | None = None,
    tools: ToolManager | Iterable[Tool | Callable[..., Any]] = (),
    budget: Budget | None = None,
    limits: Limits | None = None,
    hooks: Hooks | None = None,
    timeout: float = TIMEOUT,
) -> Tool:
    """Return a tool that runs an agent in a session of its own and returns its last reply."""
    check_kind("subagent(sessions)", sessions, SessionManager)
    manager = tools if isinstance(tools, ToolManager) else ToolManager(tools)

    async def run(task: str, context: ToolContext) -> ToolCallResult:
        """Run the sub-agent.

        Args:
            task: The task, with everything that is needed to do it: the other agent knows nothing else.
        """
        child = await _linked(sessions, context, system)
        agent = Agent(model=model, session=child, tools=manager, budget=budget, limits=limits, hooks=hooks)
        begun = await child.messages(last=1)
        run = agent.resume() if begun else agent.run(task, key=context.call.id)
        said = ""
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, Ended):
                    if event.reason != "done":
                        return _stopped(context, event)
                    said = event.message.text if event.message else ""
        return ToolCallResult.of(context.call.id, said)

    changes = any(one.changes_files for one in manager.tools)
    made = tool(name=name, description=description, idempotent=True, changes_files=changes, timeout=timeout)
    return made(run)


async def _linked(sessions: SessionManager, context: ToolContext, system: str | None) -> Session:
    """Open or create the session of a call, and link it with its parent in both directions."""
    parent, call = context.session, context.call
    if parent is None:
        raise InputError("a sub-agent needs the session of the agent that calls it")
    above = parent.info.meta.get("parent")
    depth = 1 + (above.get("depth", 1) if isinstance(above, dict) else 1)
    if depth > MAX_DEPTH:
        raise InputError(f"agents call one another at most {MAX_DEPTH} deep; do this task yourself")
    id, user = _id(parent.id, call.id), parent.info.user
    child = await sessions.open_or_create(id, user=user, system=system)
    link = {"session": parent.id, "call": call.id, "depth": depth}
    if child.info.meta.get("parent") != link:
        await child.annotate({**child.info.meta, "parent": link})
    if await parent.state.get(NAMESPACE, call.id) is None:
        await parent.state.set(NAMESPACE, call.id, id)
    return child


def _id(parent: str, call: str) -> str:
    """Return the id of a call's session; it is the same every time the call is run."""
    id = f"{parent}.{call}"
    return id if len(id) <= LONGEST_ID else f"{hashlib.sha256(parent.encode()).hexdigest()[:32]}.{call}"


def _stopped(context: ToolContext, event: Ended) -> ToolCallResult:
    said = f"; it said last: {event.message.text}" if event.message and event.message.text else ""
    text = f"the agent was stopped before it was done: {event.text or event.reason}{said}"
    return ToolCallResult.of(context.call.id, text, is_error=True)
