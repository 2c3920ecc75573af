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

A turn that was stopped ends with results, and the next one begins in the same message: then the end of the
turns before it is within that message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

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
    marked_messages, used = _marked(messages, contents, _with_mark)
    marked = dict(request)
    if system and used < MOST_MARKS:
        marked["system"] = _with_mark(system)
    if request.get("tools") and used + bool(system) < MOST_MARKS:
        marked["tools"] = _with_mark(request["tools"])
    marked["messages"] = marked_messages
    return marked


def marked_for_bedrock(request: dict[str, Any], *, tools: bool = True) -> dict[str, Any]:
    """Return a request with marks for Bedrock's cache; not every model accepts one after the `tools`."""
    messages, config = request["messages"], request.get("toolConfig")
    contents = [message["content"] for message in messages]
    given = [request.get("system"), config["tools"] if config else None, *contents]
    if any("cachePoint" in block for some in given for block in some or ()):
        return request
    marked_messages, used = _marked(messages, contents, lambda blocks: [*blocks, _POINT])
    marked = dict(request)
    if request.get("system") and used < MOST_MARKS:
        marked["system"] = [*request["system"], _POINT]
    if config and tools and used + bool(request.get("system")) < MOST_MARKS:
        marked["toolConfig"] = {**config, "tools": [*config["tools"], _POINT]}
    marked["messages"] = marked_messages
    return marked


def takes_marks(model: str) -> bool:
    """Return True if a Bedrock model is a Claude that accepts marks; others reject a request with marks."""
    return "anthropic.claude" in model and not _OLDER.search(model)


class _Section(NamedTuple):
    """A message, or a part of one: results of a turn that was stopped, or the beginning of the next."""

    place: int
    role: str
    blocks: _Blocks
    begins_turn: bool


def _marked(
    messages: list[dict[str, Any]], contents: list[_Blocks], mark: Callable[[_Blocks], _Blocks]
) -> tuple[list[dict[str, Any]], int]:
    """Return the messages with marks, and the number of marks."""
    sections = list(_sections(messages, contents))
    ends, marked = _ends(sections), list(messages)
    for place in {sections[end].place for end in ends}:
        blocks = [
            mark(one.blocks) if number in ends else one.blocks
            for number, one in enumerate(sections)
            if one.place == place
        ]
        marked[place] = {**messages[place], "content": [block for some in blocks for block in some]}
    return marked, len(ends)


def _sections(messages: list[dict[str, Any]], contents: list[_Blocks]) -> Iterator[_Section]:
    for place, (message, blocks) in enumerate(zip(messages, contents, strict=True)):
        role, results = message["role"], list(takewhile(_is_result, blocks))
        if results:
            yield _Section(place, role, results, begins_turn=False)
        if rest := blocks[len(results) :]:
            yield _Section(place, role, rest, begins_turn=role == "user")


def _ends(sections: list[_Section]) -> set[int]:
    """Return the sections to mark: the last, the one before the newest turn, and what else must be found."""
    last, turns = len(sections) - 1, [place for place, one in enumerate(sections) if one.begins_turn]
    ends = {last, turns[-1] - 1} if turns else {last}
    if turns and turns[-1] == last:
        # The last turn's requests wrote the end of the turns before it, and their own ends. The latter come
        # before the turn's answer, and still hold if no memory was recalled for that turn.
        written = [_previous_end(sections, last - 1), turns[-2] - 1 if len(turns) > 1 else -1]
    else:
        written = [_previous_end(sections, last)]
    for place in written:
        if not any(
            place <= mark and sum(len(one.blocks) for one in sections[place + 1 : mark + 1]) <= REACH
            for mark in ends
        ):
            ends.add(place)
    return {place for place in ends if place >= 0}


def _previous_end(sections: list[_Section], place: int) -> int:
    """Return where the request ended that the newest reply up to a place answered, -1 if there is none."""
    while place >= 0 and sections[place].role != "assistant":
        place -= 1
    while place >= 0 and sections[place].role == "assistant":
        place -= 1
    return place


def _is_result(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_result" or "toolResult" in block


def _blocks(content: str | _Blocks) -> _Blocks:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_mark(blocks: _Blocks) -> _Blocks:
    """Return blocks, or tools, with a mark on the last one that can have it."""
    last = next((n for n in reversed(range(len(blocks))) if blocks[n].get("type") not in _UNMARKED), None)
    return [block | _MARK if number == last else block for number, block in enumerate(blocks)]
