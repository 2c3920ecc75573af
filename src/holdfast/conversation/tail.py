"""The tail of a tangent: its last exchange, to be said again where the tangent leads back to.

It is the one copy there is: new messages that name their origins, in a form that stands by itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec
from msgspec import UNSET

from .. import ids
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult
from ..value import Extra
from .history import HistoryEntry
from .strand import Strand

__all__ = ["tail"]

BROUGHT_BACK = "The tangent was left before the tool answered"


def tail(strand: Strand, back_to: Strand) -> list[Message]:
    """Give the last exchange in a form that stands by itself, as new messages that name their origins.

    Where it answers tool results, their calls come along, and the question that opened the turn; but not
    what waits where it goes back to: that is there already.
    """
    if not strand.history.own:
        return []
    last, there = strand.history[-1], {message.id for message in back_to.pending}
    messages = [*_beyond(last.user.messages, there), last.assistant]
    answered = {result.tool_call_id for message in messages for result in message.tool_results}
    if not answered.issubset(call.id for call in back_to.open_calls) and len(strand.history) > 1:
        calls = strand.history[-2].assistant
        messages = [*_beyond(_question(strand), there), calls, *_answers(last, calls), last.assistant]
    if last.assistant.tool_calls:
        messages.append(_unanswered(last.assistant))
    return _copied(messages)


def _beyond(messages: Iterable[Message], there: Container[MessageId]) -> list[Message]:
    return [message for message in messages if message.id not in there]


def _question(strand: Strand) -> list[Message]:
    """Give the words that opened the turn of the last exchange."""
    for entry in reversed(strand.history[:-1]):
        words = [message for message in entry.user.messages if message.role == "user"]
        if words:
            return words
    return []


def _answers(last: HistoryEntry, calls: Message) -> list[Message]:
    """Give the user's side with the results of these calls alone, each of them answered."""
    known = {call.id for call in calls.tool_calls}
    results = [result for result in last.user.tool_use_results if result.tool_call_id in known]
    missing = known - {result.tool_call_id for result in results}
    results += [_broken_off(call) for call in calls.tool_calls if call.id in missing]
    words = [message for message in last.user.messages if message.role == "user"]
    return [*([Message.tool(results)] if results else []), *words]


def _unanswered(message: Message) -> Message:
    return Message.tool(map(_broken_off, message.tool_calls))


def _broken_off(call: ToolCallRequest) -> ToolCallResult:
    return ToolCallResult(tool_call_id=call.id, result=BROUGHT_BACK, is_error=True)


def _copied(messages: list[Message]) -> list[Message]:
    """Copy messages under new ids, each with a note of where it comes from."""
    calls = {call.id: ids.call_id() for message in messages for call in message.tool_calls}
    return [_copy(message, calls) for message in messages]


def _copy(message: Message, calls: dict[CallId, CallId]) -> Message:
    extra = dict(message.extra) if message.extra is not UNSET else {}
    return msgspec.structs.replace(
        message,
        id=ids.message_id(),
        tool_calls=tuple(msgspec.structs.replace(call, id=calls[call.id]) for call in message.tool_calls),
        tool_results=tuple(
            msgspec.structs.replace(result, tool_call_id=calls.get(result.tool_call_id, result.tool_call_id))
            for result in message.tool_results
        ),
        extra=Extra({**extra, "origin": message.id}),
    )
