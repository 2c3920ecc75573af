"""The conversation JSON of the command line that this state comes from: read it, and write it again.

A file that it saved, or a row of its database, becomes a `ConversationState`; one that was not changed is
written as an equal document. What we have no place for is kept beside the values it belongs to.
"""

from __future__ import annotations

from .reader import load, read
from .writer import left_out, row, saved, write

__all__ = ["left_out", "load", "read", "row", "saved", "write"]
