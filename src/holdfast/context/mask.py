"""Masking: old tool output as one line, where the whole output is no longer worth its tokens."""

from __future__ import annotations

import msgspec

from ..message import Message
from ..tokens.cost import MESSAGE_FRAME, RESULT_FRAME

__all__ = ["MASK", "masked", "masked_cost"]

MASK = "[Old tool output hidden.]"


def masked(message: Message) -> Message:
    """Give a tool message whose outputs are shown as a line each; ids and errors stay."""
    results = (msgspec.structs.replace(result, result=MASK) for result in message.tool_results)
    return message.replace(tool_results=tuple(results))


def masked_cost(message: Message, line: int) -> int:
    """Count a tool message as it would be masked, given the tokens of the line."""
    return MESSAGE_FRAME + len(message.tool_results) * (RESULT_FRAME + line)
