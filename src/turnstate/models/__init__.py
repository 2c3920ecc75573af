"""Models: the port that every provider's adapter implements, and the values that pass through it."""

from __future__ import annotations

from ..errors import ModelFailed
from .port import (
    Completion,
    Finished,
    FinishReason,
    Model,
    ModelEvent,
    ModelRequest,
    PartMade,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCallMade,
    UsageReported,
    complete,
)

__all__ = [
    "Completion",
    "FinishReason",
    "Finished",
    "Model",
    "ModelEvent",
    "ModelFailed",
    "ModelRequest",
    "PartMade",
    "ReasoningDelta",
    "Reply",
    "TextDelta",
    "ToolCallMade",
    "UsageReported",
    "complete",
]
