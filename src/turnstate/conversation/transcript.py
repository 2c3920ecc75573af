"""The transcript: a conversation as lines that people read; no model does.

The user's lines begin with ``> ``, each line of a longer prompt. The assistant's end with the tools
that it called. Tool results are not shown; errors and other notices are, as they were noted.
"""

from __future__ import annotations

from ..message import Message

__all__ = ["MAX_TRANSCRIPT_LEN", "line_of"]

MAX_TRANSCRIPT_LEN = 10_000


def line_of(message: Message) -> str | None:
    """Write a message as it stands in the transcript; None where nobody speaks in it."""
    match message.role:
        case "user":
            return "> " + message.text.replace("\n", "\n> ")
        case "assistant":
            names = ", ".join(call.name for call in message.tool_calls) or "none"
            return f"{message.text}\n[Tool uses: {names}]"
        case _:
            return None
