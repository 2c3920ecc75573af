"""Mending: what only one provider knows of its messages, left out where it rejects that.

A sound window can still be rejected in the provider's own form, since its documents come back word
for word: an empty block, an id that stands twice, a list of calls with none in it. The messages
concerned are then written as we would write them, and, if that does not help, as if they came
from another provider. All other messages keep every mark that their document gave them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, structs

from ..errors import InvalidConversation
from ..formats.port import Format, Violation
from ..message import Message
from ..native import Native
from .rounds import Repair

__all__ = ["accepted"]

MOST_PLACES = 16
"""Places that are looked up one by one; where more are rejected, every message is concerned."""


def accepted(
    messages: Sequence[Message], format: Format, *, request: bool = False
) -> tuple[Any, tuple[Repair, ...]]:
    """Write a document that the provider takes, and say what had to be left out; or raise."""
    written = list(messages)
    mended: dict[str, Repair] = {}
    while violations := format.validate(payload := format.render(written), request=request):
        places = _plainer(written, _concerned(violations, written, format))
        places = places or _plainer(written, range(len(written)))
        if not places:
            more = f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else ""
            raise InvalidConversation(f"{format.name} would reject the result: {violations[0]}{more}")
        for place, message in places.items():
            written[place] = message
            text = "what the provider rejects in this message is written anew"
            mended[message.id] = Repair(message.id, text)
    return payload, tuple(mended.values())


def _plainer(messages: Sequence[Message], places: Iterable[int]) -> dict[int, Message]:
    """Give the messages of these places with less of what their document said, where there is any."""
    found: dict[int, Message] = {}
    for place in places:
        message = messages[place]
        if (native := message.native) is None:
            continue
        if native.edits or native.starts is not None:
            plain = Native(format=native.format, envelope=native.envelope)
            found[place] = structs.replace(message, native=plain)
        elif native.envelope is UNSET:
            found[place] = structs.replace(message, native=None)
    return found


def _concerned(violations: Sequence[Violation], messages: Sequence[Message], format: Format) -> list[int]:
    """Find the messages that wrote what is rejected."""
    indexes = {violation.index for violation in violations}
    if len(indexes) > MOST_PLACES:
        return list(range(len(messages)))

    def items(end: int) -> int:
        """Count what the messages up to a place write."""
        payload = format.render(messages[: end + 1])
        listed = payload[format.list_key] if isinstance(payload, dict) else payload
        return len(listed) if isinstance(listed, list) else 1

    places = range(len(messages))
    found: set[int] = set()
    for index in indexes:
        first = bisect_left(places, index + 1, key=items) if index else 0
        last = bisect_right(places, index + 1, key=items)
        found.update(range(first, max(first + 1, last)))
    return sorted(found & set(places))
