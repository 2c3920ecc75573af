"""Responses of OpenAI Chat Completions: `choices` with a message, or chunks with deltas of it."""

from __future__ import annotations

from typing import Any

from ...errors import ReplyInterrupted
from .reply import ResponseContent, failure, reported, whole

_ONCE = frozenset({"id", "type", "role", "name", "index", "expires_at"})
"""Fields of a delta that arrive complete; any other text is continued by the next delta."""


def answer(payload: Any) -> ResponseContent:
    """Return the items and the usage of a response, or of its message alone."""
    match payload:
        case {"choices": [{"message": dict(message), **choice}, *_]}:
            response = {**payload, "finish_reason": choice.get("finish_reason")}
        case {"role": "assistant"}:
            message, response = payload, {}
        case _:
            raise failure(payload, "it has no choice with a message")
    usage = response.get("usage") or {}
    known = {key: value for key, value in message.items() if not (key == "tool_calls" and not value)}
    details = usage.get("prompt_tokens_details")
    beside = {key: response.get(key) for key in ("id", "finish_reason", "system_fingerprint", "service_tier")}
    report = reported(
        usage,
        beside | ({"reason": "refusal"} if message.get("refusal") else {}),
        input=whole(usage.get("prompt_tokens")),
        output=whole(usage.get("completion_tokens")),
        cached=whole(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        model=response.get("model"),
    )
    return ResponseContent([{**known, "role": "assistant"}], report)


class ChatStream:
    """The chunks of one completion; only the first choice is used."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._finish: str | None = None

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next chunk and return its new text."""
        if chunk.get("type") == "chunk":  # the SDK's streaming helper wraps chunks in events
            chunk = chunk["chunk"]
        if "choices" not in chunk:
            if error := chunk.get("error"):
                text = error.get("message") if isinstance(error, dict) else error
                raise ReplyInterrupted(f"the provider ended the stream: {text or error!s:.500}")
            return ""
        self._fields.update((key, value) for key, value in chunk.items() if value is not None)
        text = ""
        for choice in chunk["choices"] or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            text += delta.get("content") or ""
            _merge(self._message, delta)
            self._finish = choice.get("finish_reason") or self._finish
        return text

    def response(self) -> dict[str, Any] | None:
        """Return the response as it would arrive without streaming."""
        if self._finish is None:
            return None
        calls = self._message.get("tool_calls") or ()
        whole = [{key: value for key, value in call.items() if key != "index"} for call in calls]
        message = {**self._message, "tool_calls": whole}
        return {**self._fields, "choices": [{"message": message, "finish_reason": self._finish}]}


def _merge(known: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta into the message so far: extend text, merge lists by index, replace other values."""
    for key, value in delta.items():
        before = known.get(key)
        if value is None or (key in _ONCE and before):
            continue
        if isinstance(value, str) and isinstance(before, str):
            known[key] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            _merge(before, value)
        elif isinstance(value, list):
            known[key] = _merged_items(before if isinstance(before, list) else [], value)
        elif value or before is None:
            known[key] = value


def _merged_items(known: list[Any], items: list[Any]) -> list[Any]:
    for item in items:
        if not isinstance(item, dict):
            known.append(item)
        elif (open := _continued(known, item)) is None:
            known.append({})
            _merge(known[-1], item)
        else:
            _merge(open, item)
    return known


def _continued(known: list[Any], item: dict[str, Any]) -> dict[str, Any] | None:
    """Return the item that a delta continues; a server without indexes sends an id with each new item."""
    if (index := item.get("index")) is not None:
        found = (one for one in known if isinstance(one, dict) and one.get("index") == index)
        return next(found, None)
    last = known[-1] if known and isinstance(known[-1], dict) else None
    return last if last is not None and item.get("id") in (None, "", last.get("id")) else None
