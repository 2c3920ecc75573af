"""Responses of Amazon Bedrock Converse: `output` with a message, or events that build up its blocks."""

from __future__ import annotations

from typing import Any

from ...errors import ReplyInterrupted
from .reply import ResponseContent, failure, reported, spelled_out, whole


def answer(payload: Any) -> ResponseContent:
    """Return the items and the usage of a response, or of its message alone."""
    match payload:
        case {"output": {"message": {"content": list(content)}}}:
            pass
        case {"role": "assistant", "content": list(content)}:
            pass
        case _:
            raise failure(payload, "it has no output with a message")
    usage: Any = payload.get("usage") or {}
    metadata = payload.get("ResponseMetadata")
    read = whole(usage.get("cacheReadInputTokens"))
    report = reported(
        usage,
        {
            "id": metadata.get("RequestId") if isinstance(metadata, dict) else None,
            "stopReason": payload.get("stopReason"),
        },
        input=whole(usage.get("inputTokens")) + read + whole(usage.get("cacheWriteInputTokens")),
        output=whole(usage.get("outputTokens")),
        cached=read,
    )
    return ResponseContent([{"role": "assistant", "content": content}], report)


class BedrockStream:
    """The events of one response of ConverseStream."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._beside: dict[str, Any] = {}

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next event and return its new text."""
        match chunk:
            case {"contentBlockStart": {"contentBlockIndex": int(index), "start": dict(start)}}:
                self._blocks[index] = start
            case {"contentBlockDelta": {"contentBlockIndex": int(index), "delta": dict(delta)}}:
                return self._extend(index, delta)
            case {"messageStop": dict(stop)}:
                self._beside |= stop
            case {"metadata": dict(metadata)}:
                self._beside |= metadata
            case _:
                for kind, error in chunk.items():
                    if kind.endswith("Exception"):
                        raise ReplyInterrupted(f"the provider ended the stream: {kind}: {error!s:.500}")
        return ""

    def response(self) -> dict[str, Any] | None:
        """Return the response as it would arrive without streaming."""
        if "stopReason" not in self._beside:
            return None
        for index, text in self._inputs.items():
            use = self._blocks[index].get("toolUse")
            self._blocks[index] = {"toolUse": {**(use or {}), "input": spelled_out(text)}}
        blocks = [_whole(self._blocks[index]) for index in sorted(self._blocks)]
        return {**self._beside, "output": {"message": {"role": "assistant", "content": blocks}}}

    def _extend(self, index: int, delta: dict[str, Any]) -> str:
        block = self._blocks.setdefault(index, {})
        match delta:
            case {"text": str(text)}:
                block["text"] = block.get("text", "") + text
                return text
            case {"toolUse": {"input": str(text)}}:
                self._inputs[index] = self._inputs.get(index, "") + text
            case {"reasoningContent": {"redactedContent": str(data)}}:
                block["reasoningContent"] = {"redactedContent": data}
            case {"reasoningContent": dict(pieces)}:
                thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})
                for key, text in pieces.items():
                    thought["reasoningText"][key] = thought["reasoningText"].get(key, "") + text
            case {"citation": dict(citation)}:
                said = block.setdefault("citationsContent", {"content": [], "citations": []})
                said["citations"].append(citation)
        return ""


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as in a response: a call with its input, a cited text with its citations."""
    if isinstance(use := block.get("toolUse"), dict):
        return {"toolUse": {"input": {}, **use}}
    if "citationsContent" in block:
        said = {"content": [{"text": block.get("text", "")}]}
        return {"citationsContent": {**block["citationsContent"], **said}}
    return block
