"""Mending: what only one provider knows of its messages, left out where it rejects that.

A sound window can still be rejected in the provider's own form, since its documents come back word
for word: an empty block, an id that stands twice, a list of calls with none in it. The messages
concerned are then written as we would write them, and, if that does not help, as if they came
from another provider. All other messages keep every mark that their document gave them. Tools
that a provider wants defined, and that the document uses without, get the least definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import UNSET, structs

from ..errors import InvalidConversation
from ..formats.port import Format, Violation
from ..formats.schemas import minimal_specs
from ..message import Message
from ..native import Native
from ..toolspec import ToolSpec
from .rounds import Repair

__all__ = ["accepted"]


def accepted(
    messages: Sequence[Message], format: Format, *, request: bool = False
) -> tuple[Any, tuple[Repair, ...]]:
    """Write a document that the provider takes, and say what had to be left out; or raise."""
    written = list(messages)
    mended: dict[str, Repair] = {}
    tools: list[ToolSpec] | None = None
    while violations := format.validate(
        payload := format.render(written, tools=tools or ()), request=request
    ):
        if tools is None and (tools := _missing_tools(written, format)):
            mended = {tool.name: Repair(tool.name, "the least definition is added") for tool in tools}
            continue
        places = _plainer(written, _concerned(violations, written, format))
        places = places or _plainer(written, range(len(written)))
        if not places:
            more = f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else ""
            raise InvalidConversation(f"{format.name} would reject the result: {violations[0]}{more}")
        for place, message in places.items():
            written[place] = message
            mended[message.id] = Repair(message.id, "rewritten without what the provider rejects")
    return payload, tuple(mended.values())


def _missing_tools(messages: Sequence[Message], format: Format) -> list[ToolSpec]:
    """Give the least definitions of the tools in use, where the provider wants some and there are none."""
    tools = minimal_specs(messages)
    plain, defined = format.render(messages), format.render(messages, tools=tools)
    if not isinstance(plain, dict) or plain.keys() == defined.keys():
        return []
    return tools if len(format.validate(defined)) < len(format.validate(plain)) else []


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
    rejected = {violation.index for violation in violations}
    found: list[int] = []
    end = 0
    for place, added in enumerate(_added(messages, format)):
        start, end = end, end + added
        wrote = range(start if added else max(0, end - 1), max(1, end))  # the head goes with the first item
        if not rejected.isdisjoint(wrote):
            found.append(place)
    return found


def _added(messages: Sequence[Message], format: Format) -> Iterator[int]:
    """Give how many items of the document each message adds: none where it joins the one before."""

    def items(*some: Message) -> int:
        payload = format.render(some)
        listed = payload[format.list_key] if isinstance(payload, dict) else payload
        return len(listed) if isinstance(listed, list) else 1

    yield from (items(first) for first in messages[:1])
    yield from (items(one, other) - items(one) for one, other in pairwise(messages))
