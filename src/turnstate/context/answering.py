"""Answering: which results a conversation takes.

A result belongs to a call by the core's id, or by the provider's id within the newest batch. The same
result twice is taken once. One for a call that nobody made, or that has another result already, is
refused. One that comes late, for a call that the core answered or that has left the window, is taken and
shown in its own place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from ..errors import InvalidMessage
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from .append import by_provider

__all__ = ["Exchange", "Known", "fresh", "unknown_calls"]


class Known(Protocol):
    """What a part of a path knows: its calls, their real results, and the newest batch of calls."""

    @property
    def calls(self) -> Container[CallId]: ...  # noqa: D102
    @property
    def results(self) -> Mapping[CallId, ToolCallResult]: ...  # noqa: D102
    @property
    def batch(self) -> tuple[ToolCallRequest, ...]: ...  # noqa: D102


class Exchange:
    """The calls and results that are known when a message comes: those of a path, and a few beside."""

    def __init__(self, path: Known | None = None) -> None:
        self._path = path
        self._calls = set[CallId]()
        self._results = dict[CallId, ToolCallResult]()
        self._used_again = set[CallId]()
        self._batch: Sequence[ToolCallRequest] = path.batch if path else ()

    def learn(self, message: Message) -> None:
        """Take a message into account that is about to be written."""
        for call in message.tool_calls:
            self._calls.add(call.id)
            self._used_again.add(call.id)  # an id that is used again names the newer call
            self._results.pop(call.id, None)
        if message.tool_calls:
            self._batch = message.tool_calls
        for result in message.tool_results:
            self.take(result)

    def take(self, result: ToolCallResult) -> None:
        """Take a result into account that is about to be written."""
        if self.answer(result.tool_call_id) is None:
            self._results[result.tool_call_id] = result

    def recall(self, message: Message) -> None:
        """Take a message into account that is older than all that are known, the newest of them first."""
        for result in message.tool_results:
            if not self.knows(result.tool_call_id):
                self.take(result)
        self._calls.update(call.id for call in message.tool_calls)
        self._batch = self._batch or message.tool_calls

    def resolved(self, result: ToolCallResult) -> ToolCallResult:
        """Give the result under the core's id of its call."""
        if self.knows(result.tool_call_id):
            return result
        return by_provider(result, self._batch, self.answer)

    def knows(self, call: CallId) -> bool:
        """Tell whether somebody made that call."""
        return call in self._calls or (self._path is not None and call in self._path.calls)

    def answer(self, call: CallId) -> ToolCallResult | None:
        """Give the result that a call has already."""
        if call in self._results or call in self._used_again:
            return self._results.get(call)
        return self._path.results.get(call) if self._path else None


def unknown_calls(exchange: Exchange, messages: Iterable[Message]) -> set[CallId]:
    """Give the calls that results speak of and that are not known yet."""
    results = (exchange.resolved(result) for message in messages for result in message.tool_results)
    calls = [call for message in messages for call in message.tool_calls]
    own = {call.id for call in calls} | {call.provider_id for call in calls}
    return {one.tool_call_id for one in results if not exchange.knows(one.tool_call_id)} - own


def fresh(exchange: Exchange, messages: Iterable[Message]) -> list[Message]:
    """Give what is to be written: results under the core's ids, known ones left out, others refused."""
    kept = list[Message]()
    for message in messages:
        taken = _fresh(exchange, message)
        if taken is not None:
            exchange.learn(taken)
            kept.append(taken)
    return kept


def _fresh(exchange: Exchange, message: Message) -> Message | None:
    if message.role != "tool":
        return message
    results = list[ToolCallResult]()
    for given in message.tool_results:
        result = exchange.resolved(given)
        if not _is_known(exchange, result):
            exchange.take(result)
            results.append(result)
    if not results:
        return None
    taken = tuple(results)
    return message if taken == message.tool_results else message.replace(tool_results=taken)


def _is_known(exchange: Exchange, result: ToolCallResult) -> bool:
    before = exchange.answer(result.tool_call_id)
    if before is not None:
        if before.says_same(result):
            return True
        raise InvalidMessage(
            f"the call {result.tool_call_id} is answered already, with another result; the first one stays"
        )
    if not exchange.knows(result.tool_call_id):
        raise InvalidMessage(
            f"no call {result.tool_call_id} awaits a result; append the assistant's message first"
        )
    return False
