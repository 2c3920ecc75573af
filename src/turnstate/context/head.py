"""The head: what stands before the messages of a conversation, whatever is cut behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..ids import UNKNOWN_TIME
from ..message import Message
from ..toolspec import ToolSpec
from ..value import Value, check_kind
from .rounds import derived

__all__ = ["Category", "Head"]

Category = Literal["system", "bootstrap", "context", "memory", "tools", "summary", "immediate", "short_term"]


class Head(Value, frozen=True, kw_only=True):
    """System prompt, what is known of the user, sticky context, recalled memory, tool definitions.

    Prompt and bootstrap are system messages. Context and memory are data: one user message each,
    before the first message that is kept.
    """

    system: str | None = None
    bootstrap: str | None = None
    context: str | None = None
    memory: str | None = None
    tools: tuple[ToolSpec, ...] = ()

    def __post_init__(self) -> None:
        for field in ("system", "bootstrap", "context", "memory"):
            check_kind(f"Head.{field}", getattr(self, field), str, optional=True)
        check_kind("Head.tools", self.tools, tuple)
        for tool in self.tools:
            check_kind("Head.tools", tool, ToolSpec)

    def system_messages(self) -> Iterator[tuple[Category, Message]]:
        """Give what stands before the summary."""
        if self.system is not None:
            yield "system", _system(self.system, "prompt")
        if self.bootstrap is not None:
            yield "bootstrap", _system(self.bootstrap, "bootstrap")

    def data_messages(self) -> Iterator[tuple[Category, Message]]:
        """Give what stands between the summary and the first message that is kept."""
        if self.context is not None:
            yield "context", _data(self.context, "context")
        if self.memory is not None:
            yield "memory", _data(self.memory, "memory")


def _system(text: str, kind: Literal["prompt", "bootstrap"]) -> Message:
    return Message.system(text, kind=kind, id=derived(kind, text), timestamp=UNKNOWN_TIME)


def _data(text: str, name: str) -> Message:
    return Message.user(text, id=derived(name, text), timestamp=UNKNOWN_TIME)
