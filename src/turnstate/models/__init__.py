"""Models: the port, the values that pass through it, and the models of providers behind it."""

from __future__ import annotations

from ..errors import ModelFailed, RequestTooLong
from .port import (
    Answered,
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
from .provider import ProviderModel, Retry, anthropic, bedrock, connect, gemini, openai

__all__ = [
    "Answered",
    "Completion",
    "FinishReason",
    "Finished",
    "Model",
    "ModelEvent",
    "ModelFailed",
    "ModelRequest",
    "PartMade",
    "ProviderModel",
    "ReasoningDelta",
    "Reply",
    "RequestTooLong",
    "Retry",
    "TextDelta",
    "ToolCallMade",
    "UsageReported",
    "anthropic",
    "bedrock",
    "complete",
    "connect",
    "gemini",
    "openai",
]
