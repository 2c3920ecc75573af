"""The tail of a tangent: its last exchange, to be said again where the tangent leads back to.

It is the one copy there is: new messages that name their origins, in a form that stands by itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec
from msgspec import UNSET

from .. import ids
from ..context.rounds import open_calls
from ..decision import LEFT, Answer
from ..ids import CallId, MessageId
from ..message import Message
from ..value import Extra
from .history import HistoryEntry
from .strand import Strand

__all__ = ["tail"]


def tail(strand: Strand, back_to: Strand) -> list[Message | Answer]:
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
    given = {one.id for one in strand.decisions if isinstance(one, Answer)}
    return list(_copied(messages, given))


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
    """Give the user's side with the results of these calls alone."""
    known = {call.id for call in calls.tool_calls}
    found = list[Message]()
    for message in last.user.messages:
        results = tuple(result for result in message.tool_results if result.tool_call_id in known)
        if message.role == "user" or results:
            found.append(message.replace(tool_results=results) if results else message)
    return found


def _copied(messages: list[Message], given: Container[MessageId | None]) -> Iterator[Message | Answer]:
    """Copy messages under new ids, each with a note of its origin, and answer calls that have no result."""
    calls = {call.id: ids.call_id() for message in messages for call in message.tool_calls}
    left = set[CallId]()
    for place, message in enumerate([*messages, None]):
        if message is None or message.role != "tool":
            lacking = [call.id for call in open_calls(messages[:place]) if call.id not in left]
            yield from (Answer.give(calls[call], LEFT) for call in lacking)
            left.update(lacking)
        if message is None:
            return
        if message.id in given:
            yield from (
                Answer.give(calls.get(one.tool_call_id, one.tool_call_id), one.result, is_error=one.is_error)
                for one in message.tool_results
            )
        else:
            yield _copy(message, calls)


def _copy(message: Message, calls: Mapping[CallId, CallId]) -> Message:
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
