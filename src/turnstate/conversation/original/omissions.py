"""What the original's document has no place for, in words for the person who exports."""

from __future__ import annotations

from collections.abc import Iterator

from ...part import ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..state import ConversationState
from .writing import first_written

__all__ = ["left_out"]


def left_out(state: ConversationState) -> list[str]:
    """Say what `write` does not write, or writes as text."""
    return list(_omissions(state))


def _omissions(state: ConversationState) -> Iterator[str]:
    strand = state.head
    first = first_written(strand)
    parts = [part for message in strand.messages for part in message.parts]
    if strand.prompt:
        yield "the system prompt is left out: there, an agent brings it along"
    if strand.bootstrap:
        yield "what is known of the user is left out"
    if hidden := first - strand.live_from:
        yield f"{_counted(hidden, 'exchange')} before the summary left out"
    if older := strand.live_from:
        yield f"{_counted(older, 'exchange')} that the live history does not show left out"
    if kept := len(state.kept_tangents()):
        yield f"{_counted(kept, 'tangent')} that came to an end left out"
    if thoughts := sum(isinstance(part, ReasoningPart) for part in parts):
        yield f"{_counted(thoughts, 'piece')} of reasoning left out"
    if foreign := sum(map(_is_told, parts)):
        yield f"{_counted(foreign, 'file or picture', 'files or pictures')} written as a line of text"


def _is_told(part: Part) -> bool:
    """Tell whether a part is written as a line that says what it was."""
    if isinstance(part, ImagePart):
        return part.data is None or part.media_type is None
    return not isinstance(part, TextPart | ReasoningPart | OpaquePart)


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
