"""Mending: messages as their own provider takes them.

A document comes back word for word, and so does what its provider rejects in it: an empty block, an id
that is too long, a list of calls with none in it. A window sends nothing like that. Every message of a
window is written as its format allows, once, and by itself, so that it is the same in every window.
``rendered`` is the last check: what it returns, the provider takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import formats
from ..errors import InvalidConversation
from ..formats.port import Format
from ..message import Message
from ..toolspec import ToolSpec

__all__ = ["mended", "rendered"]


def mended(message: Message) -> tuple[Message, str | None]:
    """Return a message without what its provider rejects in it, and what was done to it."""
    native = message.native
    if native is None or native.format not in formats.names():
        return message, None
    return formats.get(native.format).mended(message)


def rendered(
    messages: Sequence[Message], format: Format, *, tools: Iterable[ToolSpec] = (), request: bool = False
) -> Any:
    """Render the messages of a window, or raise `InvalidConversation` if the provider would reject them."""
    payload = format.render(messages, tools=tools)
    if violations := format.validate(payload, request=request):
        more = f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else ""
        raise InvalidConversation(f"{format.name} would reject the result: {violations[0]}{more}")
    return payload
