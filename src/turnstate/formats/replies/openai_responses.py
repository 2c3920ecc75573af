"""Responses of OpenAI Responses: `output` items; the last event of a stream holds the whole response."""

from __future__ import annotations

from typing import Any

from ...errors import ReplyInterrupted
from .reply import ResponseContent, failure, reported, whole

_ENDS = ("response.completed", "response.incomplete", "response.cancelled")


def answer(payload: Any) -> ResponseContent:
    """Return the items and the usage of a response, or of its items alone."""
    if isinstance(payload, list) and payload:
        return ResponseContent(payload, None)
    if not isinstance(payload, dict) or not isinstance(payload.get("output"), list):
        raise failure(payload, "it has no output")
    if payload.get("status") in ("failed", "cancelled"):
        raise failure({"error": payload.get("error") or f"the response is {payload['status']}"}, "")
    usage = payload.get("usage") or {}
    details = usage.get("input_tokens_details")
    incomplete = payload.get("incomplete_details")
    reason = incomplete.get("reason") if isinstance(incomplete, dict) else None
    report = reported(
        usage,
        {
            "id": payload.get("id"),
            "status": payload.get("status"),
            "reason": "refusal" if _refuses(payload["output"]) else reason,
            "service_tier": payload.get("service_tier"),
        },
        input=whole(usage.get("input_tokens")),
        output=whole(usage.get("output_tokens")),
        cached=whole(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        model=payload.get("model"),
    )
    return ResponseContent(payload["output"], report)


def _refuses(output: list[Any]) -> bool:
    contents = [item.get("content") for item in output if isinstance(item, dict)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)


class ResponsesStream:
    """The events of one response."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next event and return its new text."""
        kind = chunk.get("type")
        if kind == "response.failed":
            error = (chunk.get("response") or {}).get("error") or {}
            raise ReplyInterrupted(f"the provider ended the stream: {error.get('message') or error!s:.500}")
        if kind in _ENDS:
            self._response = chunk.get("response")
        elif kind == "error":
            raise ReplyInterrupted(f"the provider ended the stream: {chunk.get('message') or chunk!s:.500}")
        return str(chunk.get("delta") or "") if kind == "response.output_text.delta" else ""

    def response(self) -> dict[str, Any] | None:
        """Return the response from the last event."""
        return self._response
