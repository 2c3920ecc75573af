"""An excerpt: messages as plain text for a model to read, in bounded room.

Every message is a paragraph that begins with who speaks; its further lines are indented, so that
nothing inside a message can look like the next one. Long messages keep their beginning and their
end. Where there are too many, the middle of the conversation is left out, and the excerpt says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile

from .. import sent
from ..ids import CallId
from ..message import Message
from ..part import ReasoningPart
from .quote import visible, word

__all__ = ["MOST_CHARS", "excerpt", "shortened"]

MOST_CHARS = 2_000  # of one message: beyond that it is mostly output, whose ends tell most
LEAST_CHARS = 200  # below that a message says too little to be worth its place
_FIRST_SHARE = 4  # of the room, one part in four goes to the beginning of the conversation
_NAME_CHARS = 64


def excerpt(messages: Sequence[Message], room: int, *, longest: int = MOST_CHARS) -> str:
    """Write messages as text of about at most that many characters, no message with more than the longest."""
    each = max(min(LEAST_CHARS, longest), min(longest, room // max(1, len(messages))))
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    paragraphs = [_paragraph(message, names, each) for message in messages]
    if sum(map(len, paragraphs)) + len(paragraphs) > room:
        first = _fitting(paragraphs, room // _FIRST_SHARE)
        last = _fitting(paragraphs[:0:-1], room - room // _FIRST_SHARE)
        left_out = len(paragraphs) - first - last
        paragraphs[first : len(paragraphs) - last] = [f"({left_out:,} messages left out here)"]
    return "\n".join(paragraphs)


def shortened(text: str, most: int) -> str:
    """Keep the beginning and the end of a long text, and say how much is missing."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    return f"{text[:head]} … ({len(text) - most:,} characters left out) … {text[-tail:]}"


def _fitting(paragraphs: Sequence[str], room: int) -> int:
    """Count the leading paragraphs that fit; a line's end is a character, too."""
    return sum(
        1 for _ in takewhile(lambda used: used <= room, accumulate(len(one) + 1 for one in paragraphs))
    )


def _paragraph(message: Message, names: dict[CallId, str], most: int) -> str:
    pieces = (f"{who}: {shortened(said, most)}" for who, said in _pieces(message, names))
    whole = shortened("\n".join(pieces), 2 * most)
    return "\n  ".join(visible(whole).splitlines())


def _pieces(message: Message, names: dict[CallId, str]) -> Iterator[tuple[str, str]]:
    """Give what a message says, piece by piece, each with who says it."""
    parts = (part for part in message.parts if not isinstance(part, ReasoningPart))
    if text := "\n".join(filter(None, map(sent.described, parts))):
        yield message.kind or message.role, text
    for call in message.tool_calls:
        yield f"{message.role} calls {word(call.name, _NAME_CHARS)}", sent.args_text(call.args)
    for result in message.tool_results:
        verb = "failed" if result.is_error else "gave"
        name = names.get(result.tool_call_id, "an earlier call")
        yield f"{word(name, _NAME_CHARS)} {verb}", sent.result_text(result.result)
