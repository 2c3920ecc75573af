"""Sticky context: files that are sent with every request, as one delimited text that is data.

`ContextManager` keeps the paths and gathers their text; `Workspace` says where to look for them.
"""

from __future__ import annotations

from ..errors import DuplicatePath, NothingMatches
from .manager import ContextManager
from .pattern import Workspace
from .state import (
    CONTEXT_ENTRY_END_HEADER,
    CONTEXT_ENTRY_START_HEADER,
    ContextState,
    Dropped,
    Gathered,
    Kept,
    Owner,
    Reason,
    Shown,
    StickyPath,
)

__all__ = [
    "CONTEXT_ENTRY_END_HEADER",
    "CONTEXT_ENTRY_START_HEADER",
    "ContextManager",
    "ContextState",
    "Dropped",
    "DuplicatePath",
    "Gathered",
    "Kept",
    "NothingMatches",
    "Owner",
    "Reason",
    "Shown",
    "StickyPath",
    "Workspace",
]
