"""Models: the port, the values that pass through it, and the adapters for providers."""

from __future__ import annotations

from ..errors import ModelFailed, ReplyInterrupted, RequestTooLong
from .endpoint import Endpoint, endpoint_of, provider_of
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
    Retried,
    TextDelta,
    ToolCallMade,
    UsageReported,
    complete,
)
from .provider import ProviderModel
from .retry import Retry
from .sdks import anthropic, bedrock, check_installed, connect, gemini, openai

__all__ = [
    "Answered",
    "Completion",
    "Endpoint",
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
    "ReplyInterrupted",
    "RequestTooLong",
    "Retried",
    "Retry",
    "TextDelta",
    "ToolCallMade",
    "UsageReported",
    "anthropic",
    "bedrock",
    "check_installed",
    "complete",
    "connect",
    "endpoint_of",
    "gemini",
    "openai",
    "provider_of",
]
