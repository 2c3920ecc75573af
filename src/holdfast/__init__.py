"""Holdfast keeps an agent's conversation.

It never loses a message, never sends a request that the provider rejects, and never destroys
what it compacts. This is the public face; everything else lives in modules named for their idea.
"""

from __future__ import annotations

from . import errors, formats
from ._version import __version__
from .context import Budget, ContextSnapshot, Policy, StateManager
from .message import Message, ToolCallRequest, ToolCallResult
from .part import FilePart, ImagePart, OpaquePart, ReasoningPart, TextPart
from .toolspec import ToolSpec

__all__ = [
    "Budget",
    "ContextSnapshot",
    "FilePart",
    "ImagePart",
    "Message",
    "OpaquePart",
    "Policy",
    "ReasoningPart",
    "StateManager",
    "TextPart",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolSpec",
    "__version__",
    "errors",
    "formats",
]
