"""Turnstate keeps an agent's conversation.

It never loses a message, never sends a request that the provider rejects, and never destroys
what it compacts. This module is the public API. Each name is imported on first use, so a command
that needs only a few of them starts fast.
"""

from __future__ import annotations

from importlib import import_module

from ._version import __version__

TYPE_CHECKING = False  # importing typing takes longer than all of this, and Ctrl-C may come meanwhile
if TYPE_CHECKING:
    from typing import Any

    from . import errors, formats
    from .context import Budget, Compaction, ContextSnapshot, Policy, StateManager, Strategy, Window
    from .context.fit import Fitted, fit, fitted
    from .message import Message, ToolCallRequest, ToolCallResult
    from .part import FilePart, ImagePart, OpaquePart, ReasoningPart, TextPart
    from .session import Branch, LogEntry, Receipt, SearchResult, Session, SessionInfo, SessionManager
    from .toolspec import ToolSpec

__all__ = [
    "Branch",
    "Budget",
    "Compaction",
    "ContextSnapshot",
    "FilePart",
    "Fitted",
    "ImagePart",
    "LogEntry",
    "Message",
    "OpaquePart",
    "Policy",
    "ReasoningPart",
    "Receipt",
    "SearchResult",
    "Session",
    "SessionInfo",
    "SessionManager",
    "StateManager",
    "Strategy",
    "TextPart",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolSpec",
    "Window",
    "__version__",
    "errors",
    "fit",
    "fitted",
    "formats",
]

_HOMES = {
    "context.fit": ("Fitted", "fit", "fitted"),
    "context": (
        "Budget",
        "Compaction",
        "ContextSnapshot",
        "Policy",
        "StateManager",
        "Strategy",
        "Window",
    ),
    "message": ("Message", "ToolCallRequest", "ToolCallResult"),
    "part": ("FilePart", "ImagePart", "OpaquePart", "ReasoningPart", "TextPart"),
    "session": (
        "Branch",
        "LogEntry",
        "Receipt",
        "SearchResult",
        "Session",
        "SessionInfo",
        "SessionManager",
    ),
    "toolspec": ("ToolSpec",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
