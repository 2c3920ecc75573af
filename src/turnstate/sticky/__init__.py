"""Sticky context: files that are sent with every request, as one delimited text that is data.

`ContextManager` keeps the paths and gathers their text; `Workspace` says where to look for them.
"""

from __future__ import annotations

from ..errors import DuplicatePath, NothingMatches
from .entries import CONTEXT_ENTRY_END_HEADER, CONTEXT_ENTRY_START_HEADER
from .manager import ContextManager
from .state import ContextState, StickyPath
from .values import Dropped, Gathered, Kept, Owner, Reason, Shown
from .workspace import Workspace

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
