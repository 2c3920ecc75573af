"""Cache marks: which prefixes of a request later requests share, for providers that require marks.

Four prefixes are stable: the tools, the system prompt, the turns before this one, and this whole request,
since the next round of the turn begins with it. That makes four marks, the most that a request may have. If
the caller has set any mark, none is added. Anthropic's mark is a field of a block; Bedrock's is a block of
its own.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["marked_for_anthropic", "marked_for_bedrock", "takes_marks"]

_MARK = {"cache_control": {"type": "ephemeral"}}
_UNMARKED = ("thinking", "redacted_thinking")  # blocks that cannot have a mark
_POINT = {"cachePoint": {"type": "default"}}
_OLDER = re.compile(r"claude-(v|instant|2|3-(?!7|5-haiku))")

_Blocks = list[dict[str, Any]]


def marked_for_anthropic(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request with marks for Anthropic's cache."""
    system, messages = request.get("system"), request["messages"]
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    contents = [_blocks(message["content"]) for message in messages]
    given = [request.get("tools"), system, *contents]
    if "cache_control" in request or any("cache_control" in block for some in given for block in some or ()):
        return request
    marked = dict(request)
    if request.get("tools"):
        marked["tools"] = _with_mark(request["tools"])
    if system:
        marked["system"] = _with_mark(system)
    ends = _ends([_asks(one, blocks) for one, blocks in zip(messages, contents, strict=True)])
    marked["messages"] = [
        {**message, "content": _with_mark(contents[place])} if place in ends else message
        for place, message in enumerate(messages)
    ]
    return marked


def marked_for_bedrock(request: dict[str, Any], *, tools: bool = True) -> dict[str, Any]:
    """Return a request with marks for Bedrock's cache; not every model accepts one after the `tools`."""
    messages, config = request["messages"], request.get("toolConfig")
    given = [
        request.get("system"),
        config["tools"] if config else None,
        *(one["content"] for one in messages),
    ]
    if any("cachePoint" in block for some in given for block in some or ()):
        return request
    marked = dict(request)
    if config and tools:
        marked["toolConfig"] = {**config, "tools": [*config["tools"], _POINT]}
    if request.get("system"):
        marked["system"] = [*request["system"], _POINT]
    ends = _ends([_asks(one, one["content"]) for one in messages])
    marked["messages"] = [
        {**message, "content": [*message["content"], _POINT]} if place in ends else message
        for place, message in enumerate(messages)
    ]
    return marked


def takes_marks(model: str) -> bool:
    """Return True if a Bedrock model is a Claude that accepts marks; others reject a request with marks."""
    return "anthropic.claude" in model and not _OLDER.search(model)


def _ends(asks: list[bool]) -> set[int]:
    """Return the messages at which a stable prefix ends: the last, and the one before the newest turn."""
    turns = [place for place, begins in enumerate(asks) if begins]
    return {len(asks) - 1, *([turns[-1] - 1] if turns and turns[-1] else [])}


def _asks(message: dict[str, Any], blocks: _Blocks) -> bool:
    """Return True if a message comes from the user, not only from tools, and so begins a turn."""
    results = (block.get("type") == "tool_result" or "toolResult" in block for block in blocks)
    return message["role"] == "user" and not all(results)


def _blocks(content: str | _Blocks) -> _Blocks:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_mark(blocks: _Blocks) -> _Blocks:
    """Return blocks, or tools, with a mark on the last one that can have it."""
    last = next((n for n in reversed(range(len(blocks))) if blocks[n].get("type") not in _UNMARKED), None)
    return [block | _MARK if number == last else block for number, block in enumerate(blocks)]
