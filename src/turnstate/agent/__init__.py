"""Agents: a model, tools and a session, in a loop whose every step is saved before the next begins."""

from ..tools import ToolContext, ToolManager, tool
from .agent import Agent, Limits
from .events import (
    AgentEvent,
    Compacted,
    Ended,
    EndReason,
    ReplySaved,
    RequestStarted,
    ToolFinished,
    ToolStarted,
)
from .hooks import Hooks, Stop

__all__ = [
    "Agent",
    "AgentEvent",
    "Compacted",
    "EndReason",
    "Ended",
    "Hooks",
    "Limits",
    "ReplySaved",
    "RequestStarted",
    "Stop",
    "ToolContext",
    "ToolFinished",
    "ToolManager",
    "ToolStarted",
    "tool",
]
