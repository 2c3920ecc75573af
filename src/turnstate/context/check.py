"""The chokepoint: no window leaves that a provider would reject.

These are the rules that all providers share, in terms of messages: system messages first, then a
user, every call answered once and at once, no answer without its call, no id twice. What holds here
renders validly in every format. A window that grew is walked from where it grew.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidConversation
from ..message import Message

__all__ = ["check", "check_fit"]


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
