"""Agents: a model, tools and a session, in a loop whose every step is saved before the next begins."""

from ..catalog import Prices
from ..tools import ToolContext, ToolManager, tool
from .agent import Agent
from .events import (
    AgentEvent,
    CheckpointFailed,
    CheckpointSaved,
    Compacted,
    Ended,
    EndReason,
    ReplySaved,
    RequestStarted,
    ToolFinished,
    ToolStarted,
)
from .hooks import Hooks, Stop
from .limits import Limits
from .subagent import subagent

__all__ = [
    "Agent",
    "AgentEvent",
    "CheckpointFailed",
    "CheckpointSaved",
    "Compacted",
    "EndReason",
    "Ended",
    "Hooks",
    "Limits",
    "Prices",
    "ReplySaved",
    "RequestStarted",
    "Stop",
    "ToolContext",
    "ToolFinished",
    "ToolManager",
    "ToolStarted",
    "subagent",
    "tool",
]
