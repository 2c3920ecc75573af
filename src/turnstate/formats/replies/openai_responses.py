"""What OpenAI Responses answers: `output` items; the last event of a stream holds the whole response."""

from __future__ import annotations

from typing import Any

from ...errors import ModelFailed
from .reply import Answer, failure, reported, whole

__all__ = ["Stream", "answer"]

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def answer(payload: Any) -> Answer:
    """Take a response apart, or the items of one."""
    if isinstance(payload, list) and payload:
        return Answer(payload, None)
    if not isinstance(payload, dict) or not isinstance(payload.get("output"), list):
        raise failure(payload, "it has no output")
    if payload.get("status") in ("failed", "cancelled"):
        raise failure({"error": payload.get("error") or f"the response is {payload['status']}"}, "")
    usage = payload.get("usage") or {}
    details = usage.get("input_tokens_details")
    incomplete = payload.get("incomplete_details")
    report = reported(
        usage,
        {
            "id": payload.get("id"),
            "status": payload.get("status"),
            "reason": incomplete.get("reason") if isinstance(incomplete, dict) else None,
            "service_tier": payload.get("service_tier"),
        },
        input=whole(usage.get("input_tokens")),
        output=whole(usage.get("output_tokens")),
        cached=whole(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        model=payload.get("model"),
    )
    return Answer(payload["output"], report)


class Stream:
    """The events of one response."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> str:
        """Take the next event; return the text that is new."""
        kind = chunk.get("type")
        if kind in _ENDS:
            self._response = chunk.get("response")
        elif kind == "error":
            raise ModelFailed(f"the provider ended the stream: {chunk.get('message') or chunk!s:.500}")
        return str(chunk.get("delta") or "") if kind == "response.output_text.delta" else ""

    def response(self) -> dict[str, Any] | None:
        """Return the response that the last event held."""
        return self._response
