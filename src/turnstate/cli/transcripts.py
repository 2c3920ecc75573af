"""Conversations in no provider's format: Markdown for people, JSON Lines as Turnstate keeps messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InputError
from ..formats.jsonl import jsonl
from ..formats.markdown import markdown
from ..message import Message
from .conversations import Conversation
from .screen import harmless

__all__ = ["TRANSCRIPTS", "Transcript"]

Transcript = Callable[[Conversation, Sequence[Message]], str]


def _markdown(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Write Markdown; among many, each conversation has a title."""
    text = harmless(markdown(messages).rstrip("\n"))
    return text if conversation.line is None else f"# {conversation.label}\n\n{text}\n"


def _jsonl(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Write a header and a message a line, which is one conversation."""
    if conversation.line is not None:
        raise InputError("jsonl holds one conversation, a message a line; convert the lines one by one")
    return "".join(jsonl(messages)).rstrip("\n")


TRANSCRIPTS: dict[str, Transcript] = {"markdown": _markdown, "jsonl": _jsonl}
"""What `convert` writes besides the formats of providers."""
