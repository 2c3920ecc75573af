"""The conversation JSON of Amazon Q, the command line that this state comes from: reading and writing.

A file that it saved, or a row of its database, becomes a `ConversationState`. An unchanged state is written
as an equal document. Data that we have no place for is kept next to the values it belongs to.
"""

from __future__ import annotations

from .reader import load, read
from .writer import left_out, row, saved, write

__all__ = ["left_out", "load", "read", "row", "saved", "write"]
