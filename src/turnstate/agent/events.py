"""What an agent reports while it runs: typed events that a user interface can follow."""

from __future__ import annotations

from typing import Literal

from ..context.cut import Compaction
from ..entry import Usage
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import ReasoningDelta, TextDelta
from ..value import Value

__all__ = [
    "AgentEvent",
    "Compacted",
    "EndReason",
    "Ended",
    "ReplySaved",
    "RequestStarted",
    "ToolFinished",
    "ToolStarted",
]

EndReason = Literal["done", "rounds", "repeated", "tokens", "stopped"]
"""Why a run ended: the model is done, a limit was reached, it repeats itself, or a hook stopped it."""


class RequestStarted(Value, frozen=True, kw_only=True, tag="request", tag_field="event"):
    """A request goes to the model: its tokens, and how many of them the provider may have cached."""

    round: int
    tokens: int
    limit: int
    reused: int


class ReplySaved(Value, frozen=True, kw_only=True, tag="reply", tag_field="event"):
    """The model's reply is in the log, with the usage that the provider reported."""

    message: Message
    usage: Usage | None = None


class ToolStarted(Value, frozen=True, tag="tool_started", tag_field="event"):
    """A tool is about to run."""

    call: ToolCallRequest


class ToolFinished(Value, frozen=True, kw_only=True, tag="tool_finished", tag_field="event"):
    """The result of a tool is in the log."""

    call: ToolCallRequest
    result: ToolCallResult


class Compacted(Value, frozen=True, tag="compacted", tag_field="event"):
    """The provider found the request too long, so the conversation was compacted; it is sent again."""

    outcome: Compaction


class Ended(Value, frozen=True, kw_only=True, tag="ended", tag_field="event"):
    """The run is over; ``message`` is the last reply, if there was one."""

    reason: EndReason
    message: Message | None = None
    text: str = ""


AgentEvent = (
    RequestStarted | TextDelta | ReasoningDelta | ReplySaved | ToolStarted | ToolFinished | Compacted | Ended
)
