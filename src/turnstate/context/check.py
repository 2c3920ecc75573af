"""The chokepoint: no window leaves that a provider would reject.

These are the rules that all providers share, in terms of messages: system messages first, then a
user, every call answered once and at once, no answer without its call, no id twice. What holds here
renders validly in every format. A window that grew is walked from where it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import formats
from ..errors import InvalidConversation
from ..formats.port import Format
from ..message import Message
from ..toolspec import ToolSpec

__all__ = ["check", "check_fit", "mended", "rendered"]


def check(messages: Sequence[Message], known: int = 0) -> None:
    """Raise if a window breaks a rule; its first `known` messages were found sound before."""
    start = _edge(messages, known)
    if start == 0:
        _check_opening(messages)
    awaited: dict[str, None] = {}
    for message in messages[start:]:
        if message.role == "tool":
            for result in message.tool_results:
                if result.tool_call_id not in awaited:
                    raise InvalidConversation(
                        f"message {message.id} answers {result.tool_call_id}, which awaits no answer"
                    )
                del awaited[result.tool_call_id]
        elif awaited:
            raise InvalidConversation(
                f"the call {next(iter(awaited))} is left without an answer before {message.id}"
            )
        for call in message.tool_calls:
            awaited[call.id] = None
    if awaited:
        raise InvalidConversation(f"the call {next(iter(awaited))} is left without an answer at the end")
    if start == 0:
        _check_ids(messages)


def check_fit(tokens: int, limit: int) -> None:
    """Raise if a window has more tokens than it may."""
    if tokens > limit:
        raise InvalidConversation(f"the window came out too long: {tokens:,} tokens of {limit:,}")


def _edge(messages: Sequence[Message], known: int) -> int:
    """Step back to the calls that were made last: before them nothing is open."""
    start = min(known, len(messages))
    while start > 0 and messages[start - 1].role == "tool":
        start -= 1
    return start - 1 if start > 0 and messages[start - 1].tool_calls else start


def _check_opening(messages: Sequence[Message]) -> None:
    first = next((message for message in messages if message.role != "system"), None)
    if first is not None and first.role != "user":
        raise InvalidConversation(f"the first message is the user's, not {first.role} {first.id}")


def _check_ids(messages: Sequence[Message]) -> None:
    calls = [call.id for message in messages for call in message.tool_calls]
    if len(set(calls)) < len(calls):
        twice = next(id for id in calls if calls.count(id) > 1)
        raise InvalidConversation(f"the call id {twice} is not unique")


# Mending: messages as their own provider takes them.


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
