"""Adding to a list of messages: what answers nothing is refused before it is there."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidMessage
from ..ids import CallId
from ..message import Message, ToolCallResult

__all__ = ["appended"]


def appended(messages: Sequence[Message], message: Message) -> list[Message]:
    """Give the list with the message added; an identical answer that is there already is not added again."""
    if any(known.id == message.id for known in messages):
        raise InvalidMessage(f"the list holds a message {message.id} already")
    fresh = [result for result in message.tool_results if not _is_known(messages, result)]
    if message.role == "tool" and not fresh:
        return list(messages)
    whole = len(fresh) == len(message.tool_results)
    return [*messages, message if whole else message.replace(tool_results=tuple(fresh))]


def _is_known(messages: Sequence[Message], result: ToolCallResult) -> bool:
    """Tell whether the same result is there; refuse one that answers nothing, or something else anew."""
    before = _answer(messages, result.tool_call_id)
    if before is not None:
        if (before.result, before.is_error) == (result.result, result.is_error):
            return True
        raise InvalidMessage(f"the call {result.tool_call_id} is answered already, with another result")
    calls = (call.id for known in messages for call in known.tool_calls)
    if result.tool_call_id not in calls:
        raise InvalidMessage(
            f"no call {result.tool_call_id} awaits a result; append the assistant's message first"
        )
    return False


def _answer(messages: Sequence[Message], call: CallId) -> ToolCallResult | None:
    results = (result for known in messages for result in known.tool_results)
    return next((result for result in results if result.tool_call_id == call), None)
