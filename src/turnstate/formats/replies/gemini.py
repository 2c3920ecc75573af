"""Responses of Google Gemini: `candidates` with a content; in a stream, each response adds parts."""

from __future__ import annotations

import re
from typing import Any

from ...errors import ModelFailed
from ..rules.gemini import camel
from .reply import ResponseContent, failure, reported, whole

_SNAKE = re.compile("_([a-z])")


def answer(payload: Any) -> ResponseContent:
    """Return the items and the usage of a response, or of its content alone."""
    if isinstance(payload, dict) and payload.get("role") == "model":
        return ResponseContent([_content(payload)], None)
    response = _spelled(payload)
    candidates = response.get("candidates")
    candidate = _spelled(candidates[0]) if isinstance(candidates, list) and candidates else None
    if candidate is None:
        reason = _spelled(response.get("promptFeedback")).get("blockReason")
        if reason:
            raise ModelFailed(f"the provider blocked the prompt: {reason}")
        raise failure(payload, "it has no candidate")
    usage = _spelled(response.get("usageMetadata"))
    counts = {key: whole(value) for key, value in usage.items()}
    report = reported(
        usage,
        {"id": response.get("responseId"), "finishReason": candidate.get("finishReason")},
        input=counts.get("promptTokenCount", 0) + counts.get("toolUsePromptTokenCount", 0),
        output=counts.get("candidatesTokenCount", 0) + counts.get("thoughtsTokenCount", 0),
        cached=counts.get("cachedContentTokenCount", 0),
        model=response.get("modelVersion"),
    )
    return ResponseContent([_content(candidate.get("content"))], report)


class GeminiStream:
    """The responses of one stream; each adds parts."""

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._finish: Any = None

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next response and return its new text."""
        response = _spelled(chunk)
        self._response |= response
        text = ""
        for candidate in map(_spelled, (response.get("candidates") or [])[:1]):
            self._finish = candidate.get("finishReason") or self._finish
            for part in _content(candidate.get("content"))["parts"]:
                text += part.get("text") or "" if not part.get("thought") else ""
                self._add(part)
        return text

    def response(self) -> dict[str, Any] | None:
        """Return the response as it would arrive without streaming."""
        if self._finish is None and "promptFeedback" not in self._response:
            return None
        if self._finish is None:
            return self._response
        content = {"role": "model", "parts": self._parts}
        return {**self._response, "candidates": [{"content": content, "finishReason": self._finish}]}

    def _add(self, part: dict[str, Any]) -> None:
        """Add a part; text continues the previous text unless one of the two is signed."""
        last = self._parts[-1] if self._parts else None
        if (
            last is not None
            and _is_text(last)
            and _is_text(part)
            and last.get("thought") == part.get("thought")
        ):
            last["text"] += part["text"]
        else:
            self._parts.append(dict(part))


def _is_text(part: dict[str, Any]) -> bool:
    return part.keys() <= {"text", "thought"} and isinstance(part.get("text"), str)


def _spelled(value: Any) -> dict[str, Any]:
    """Return an object with camel-case keys, as in the reference, and without nulls."""
    known: dict[str, Any] = value if isinstance(value, dict) else {}
    return {
        _SNAKE.sub(lambda found: found[1].upper(), key): item
        for key, item in known.items()
        if item is not None
    }


def _content(content: Any) -> dict[str, Any]:
    """Return a content in the form of a request."""
    parts = content.get("parts") if isinstance(content, dict) else None
    return {"role": "model", "parts": [camel(part) for part in parts or () if isinstance(part, dict)]}
