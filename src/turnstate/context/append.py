"""Adding to a list of messages: what answers nothing is refused before it is there.

A result belongs to a call by the core's id, or by the provider's id within the newest batch. Where a
batch repeats a provider's id, its results go to its calls in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from ..errors import InvalidMessage
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult

__all__ = ["appended", "by_provider"]


def by_provider(
    result: ToolCallResult,
    batch: Sequence[ToolCallRequest],
    answer: Callable[[CallId], ToolCallResult | None],
) -> ToolCallResult:
    """Return a result under the core's id of the call that it names by the provider's id.

    Of several such calls it is the first that has no answer yet; if all have one, the one with the same
    answer. `answer` returns the result that a call has. Without any such call the result stays as it is.
    """
    named = [call.id for call in batch if call.provider_id == result.tool_call_id]
    if not named:
        return result
    open_calls = (call for call in named if answer(call) is None)
    same = (call for call in named if (known := answer(call)) and known.says_same(result))
    return structs.replace(result, tool_call_id=next(open_calls, None) or next(same, named[-1]))


def appended(messages: Sequence[Message], message: Message) -> list[Message]:
    """Give the list with the message added; an identical answer that is there already is not added again."""
    if any(known.id == message.id for known in messages):
        raise InvalidMessage(f"the list holds a message {message.id} already")
    if message.role != "tool":
        return [*messages, message]
    calls = {call.id for known in messages for call in known.tool_calls}
    batch = next((known.tool_calls for known in reversed(messages) if known.tool_calls), ())
    answers = _answers(messages)
    fresh = list[ToolCallResult]()
    for given in message.tool_results:
        result = given if given.tool_call_id in calls else by_provider(given, batch, answers.get)
        if not _is_known(result, calls, answers):
            answers[result.tool_call_id] = result
            fresh.append(result)
    if not fresh:
        return list(messages)
    taken = tuple(fresh)
    return [*messages, message if taken == message.tool_results else message.replace(tool_results=taken)]


def _answers(messages: Sequence[Message]) -> dict[CallId, ToolCallResult]:
    """Return the results by call; an id that is used again names the newer call."""
    answers = dict[CallId, ToolCallResult]()
    for message in messages:
        for call in message.tool_calls:
            answers.pop(call.id, None)
        for result in message.tool_results:
            answers.setdefault(result.tool_call_id, result)
    return answers


def _is_known(result: ToolCallResult, calls: set[CallId], answers: dict[CallId, ToolCallResult]) -> bool:
    """Tell whether the same result is there; refuse one that answers nothing, or something else anew."""
    before = answers.get(result.tool_call_id)
    if before is not None:
        if before.says_same(result):
            return True
        raise InvalidMessage(f"the call {result.tool_call_id} is answered already, with another result")
    if result.tool_call_id not in calls:
        raise InvalidMessage(
            f"no call {result.tool_call_id} awaits a result; append the assistant's message first"
        )
    return False
