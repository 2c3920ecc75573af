"""Responses of Anthropic Messages: a message with its content, or events that build up its blocks."""

from __future__ import annotations

from typing import Any

from ...errors import ReplyInterrupted
from .reply import ResponseContent, failure, reported, spelled_out, whole

_ASIDE = frozenset({"role", "content", "type", "usage", "model"})


def answer(payload: Any) -> ResponseContent:
    """Return the items and the usage of a response."""
    match payload:
        case {"role": "assistant", "content": list() | str()}:
            pass
        case _:
            raise failure(payload, "it has no content of the assistant")
    usage: Any = payload.get("usage") or {}
    read = whole(usage.get("cache_read_input_tokens"))
    report = reported(
        usage,
        {key: value for key, value in payload.items() if key not in _ASIDE},
        input=whole(usage.get("input_tokens")) + read + whole(usage.get("cache_creation_input_tokens")),
        output=whole(usage.get("output_tokens")),
        cached=read,
        model=payload.get("model"),
    )
    return ResponseContent([{"role": "assistant", "content": payload["content"]}], report)


class AnthropicStream:
    """The events of one message; events that an SDK derives from them are ignored."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._ended = False

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next event and return its new text."""
        match chunk:
            case {"type": "message_start", "message": dict(message)}:
                self._message = message
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = block
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                return self._extend(index, delta)
            case {"type": "message_delta", "delta": dict(delta), **rest} if self._message is not None:
                usage = {key: value for key, value in (rest.get("usage") or {}).items() if value is not None}
                self._message |= {key: value for key, value in delta.items() if value is not None}
                self._message["usage"] = (self._message.get("usage") or {}) | usage
            case {"type": "message_stop"}:
                self._ended = True
            case {"type": "error", "error": error}:
                text = error.get("message") if isinstance(error, dict) else error
                raise ReplyInterrupted(f"the provider ended the stream: {text!s:.500}")
        return ""

    def response(self) -> dict[str, Any] | None:
        """Return the message as it would arrive without streaming."""
        if self._message is None or not self._ended:
            return None
        for index, text in self._inputs.items():
            self._blocks[index]["input"] = spelled_out(text)
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _extend(self, index: int, delta: dict[str, Any]) -> str:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                block["text"] = block.get("text", "") + text
                return text
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._inputs[index] = self._inputs.get(index, "") + text
            case {"type": "thinking_delta", "thinking": str(text)}:
                block["thinking"] = block.get("thinking", "") + text
            case {"type": "signature_delta", "signature": str(text)}:
                block["signature"] = text
            case {"type": "citations_delta", "citation": citation}:
                block["citations"] = [*(block.get("citations") or []), citation]
        return ""
