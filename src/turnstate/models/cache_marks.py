"""Cache marks: which prefixes of a request later requests share, for providers that require marks.

Four prefixes are stable: the tools, the system prompt, the turns before this one, and this whole request,
since the next round of the turn begins with it. That makes four marks, the most that a request may have. If
the caller has set any mark, none is added. Anthropic's mark is a field of a block; Bedrock's is a block of
its own.

A provider writes to its cache only at marks, and looks for what it wrote at a mark and at some blocks before
it. A round with many calls has more blocks than that, so the next request would find nothing. Then it gets a
mark exactly where the one before it had its own: at the end of the previous request, or, if a turn begins, at
the end of the turns before the last one, which is all that remains if memory was recalled for that turn. Such
a mark takes the place of the one after the tools, which the system prompt's prefix contains.
"""

from __future__ import annotations

import re
from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}
_UNMARKED = ("thinking", "redacted_thinking")  # blocks that cannot have a mark
_POINT = {"cachePoint": {"type": "default"}}
_OLDER = re.compile(r"claude-(v|instant|2|3-(?!7|5-haiku))")

MOST_MARKS = 4
"""The most marks that Anthropic and Bedrock accept in a request."""

REACH = 15
"""How many blocks before a mark a prefix is relied on to be found.

Anthropic looks at 20 positions, the mark included; Bedrock, about Claude, says "approximately 20" and may
count its own marks as blocks.
"""

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
    asks = [_asks(one, blocks) for one, blocks in zip(messages, contents, strict=True)]
    ends = _ends(asks, [len(blocks) for blocks in contents])
    marked = dict(request)
    if system and len(ends) < MOST_MARKS:
        marked["system"] = _with_mark(system)
    if request.get("tools") and len(ends) + bool(system) < MOST_MARKS:
        marked["tools"] = _with_mark(request["tools"])
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
    ends = _ends([_asks(one, one["content"]) for one in messages], [len(one["content"]) for one in messages])
    marked = dict(request)
    if request.get("system") and len(ends) < MOST_MARKS:
        marked["system"] = [*request["system"], _POINT]
    if config and tools and len(ends) + bool(request.get("system")) < MOST_MARKS:
        marked["toolConfig"] = {**config, "tools": [*config["tools"], _POINT]}
    marked["messages"] = [
        {**message, "content": [*message["content"], _POINT]} if place in ends else message
        for place, message in enumerate(messages)
    ]
    return marked


def takes_marks(model: str) -> bool:
    """Return True if a Bedrock model is a Claude that accepts marks; others reject a request with marks."""
    return "anthropic.claude" in model and not _OLDER.search(model)


def _ends(asks: list[bool], sizes: list[int]) -> set[int]:
    """Return the messages to mark: the last, the one before the newest turn, and what else must be found."""
    last, turns = len(asks) - 1, [place for place, begins in enumerate(asks) if begins]
    ends = {last, turns[-1] - 1} if turns else {last}
    if turns and turns[-1] == last:
        # The last turn's requests wrote the end of the turns before it, and their own ends. The latter come
        # before the turn's answer, and still hold if no memory was recalled for that turn.
        written = [turns[-1] - 2, turns[-2] - 1 if len(turns) > 1 else -1]
    else:
        written = [last - 2]  # the previous request ended before the reply that these results belong to
    for place in written:
        if not any(place <= mark and sum(sizes[place + 1 : mark + 1]) <= REACH for mark in ends):
            ends.add(place)
    return {place for place in ends if place >= 0}


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
