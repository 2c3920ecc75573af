"""Events: what an agent reports while it runs, typed so that a user interface can follow it."""

from __future__ import annotations

from typing import Literal

from ..context.cut import Compaction
from ..entry import Usage
from ..message import Message, ToolCallRequest, ToolCallResult
from ..models import FinishReason, ReasoningDelta, Retried, TextDelta
from ..value import Value

EndReason = Literal["done", "refusal", "length", "rounds", "repeated", "tokens", "cost", "stopped"]
"""Why a run ended: the model is done, it refused, its reply was cut off, a limit was reached, it repeats
itself, or a hook stopped it."""


class RequestStarted(Value, frozen=True, kw_only=True, tag="request", tag_field="event"):
    """A request goes to the model: its tokens, and how many of them the provider may have cached."""

    round: int
    tokens: int
    limit: int
    reused: int


class ReplySaved(Value, frozen=True, kw_only=True, tag="reply", tag_field="event"):
    """The model's reply is in the log; ``reason`` says why it ended, ``usage`` comes from the provider."""

    message: Message
    reason: FinishReason = "stop"
    usage: Usage | None = None


class ToolStarted(Value, frozen=True, tag="tool_started", tag_field="event"):
    """A tool is about to run."""

    call: ToolCallRequest


class ToolFinished(Value, frozen=True, kw_only=True, tag="tool_finished", tag_field="event"):
    """The result of a tool is in the log."""

    call: ToolCallRequest
    result: ToolCallResult


class CheckpointSaved(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="event"):
    """A checkpoint was saved: ``label`` restores the files and the conversation of this moment.

    ``moving`` names files that it does not hold, because other programs were writing them.
    """

    label: str
    tool: str | None = None
    moving: tuple[str, ...] = ()


class CheckpointFailed(Value, frozen=True, kw_only=True, tag="checkpoint_failed", tag_field="event"):
    """No checkpoint could be taken; ``text`` says why. The run continues."""

    text: str


class Compacted(Value, frozen=True, tag="compacted", tag_field="event"):
    """The provider found the request too long, so the conversation was compacted and is sent again."""

    outcome: Compaction


class Ended(Value, frozen=True, kw_only=True, tag="ended", tag_field="event"):
    """The run is over; ``message`` is the last reply, if there was one."""

    reason: EndReason
    message: Message | None = None
    text: str = ""


AgentEvent = (
    RequestStarted
    | TextDelta
    | ReasoningDelta
    | Retried
    | ReplySaved
    | ToolStarted
    | ToolFinished
    | CheckpointSaved
    | CheckpointFailed
    | Compacted
    | Ended
)
