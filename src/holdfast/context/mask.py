"""Masking: old tool output as one line, where the whole output is no longer worth its tokens."""

from __future__ import annotations

import msgspec

from .. import sent
from ..message import Message, ToolCallResult

__all__ = ["masked"]


def masked(message: Message) -> Message:
    """Give a tool message whose outputs are shown as a line each; ids and errors stay."""
    return message.replace(tool_results=tuple(_line(result) for result in message.tool_results))


def _line(result: ToolCallResult) -> ToolCallResult:
    size = len(sent.result_text(result.result))
    text = f"[Old tool output hidden: {size:,} characters]"
    return msgspec.structs.replace(result, result=text)
