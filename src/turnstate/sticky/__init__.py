"""Sticky context: files that are sent with every request as one delimited text.

`ContextManager` holds the paths and gathers their text; `Workspace` says where to look them up.
"""

from __future__ import annotations

from ..errors import DuplicatePath, NothingMatches
from .manager import ContextManager
from .pattern import Workspace
from .sticky_paths import (
    CONTEXT_ENTRY_END_HEADER,
    CONTEXT_ENTRY_START_HEADER,
    ContextState,
    Dropped,
    Gathered,
    Owner,
    Reason,
    Shown,
    StickyFile,
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
    "NothingMatches",
    "Owner",
    "Reason",
    "Shown",
    "StickyFile",
    "StickyPath",
    "Workspace",
]
