"""Masking: old tool output as one line, where the whole output is no longer worth its tokens."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..message import Message, ToolCallResult
from .reduce import note_of

__all__ = ["MASK", "masked"]

MASK = "[Old tool output hidden.]"


def masked(message: Message, handle: Callable[[ToolCallResult], str] | None = None) -> Message:
    """Return a tool message with a line in place of each output; ids and errors stay.

    ``handle`` returns the id under which a store holds a whole output; a second line tells it.
    """
    results = (
        msgspec.structs.replace(result, result=f"{MASK}\n{note_of(handle(result))}" if handle else MASK)
        for result in message.tool_results
    )
    return message.replace(tool_results=tuple(results))
