"""Calls and their results: which results a conversation accepts, and what it shows for calls without one.

A result names its call by the core's id or by the provider's. The first real result of a call is accepted,
however late. The same result again is ignored; a different one, or a result of an unknown call, is refused
before anything is written. This does not require reading a whole path: `KnownCalls` starts from what is known
of the path and adds older messages one by one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from ..entry import ABANDONED
from ..errors import InvalidMessage
from ..formats import unfolded
from ..ids import CallId, named_call
from ..message import Message, ToolCallRequest, ToolCallResult
from .turns import note, synthetic


class PathCalls(Protocol):
    """The known part of a path: its calls, their real results, and the newest batch of calls."""

    @property
    def calls(self) -> Container[CallId]: ...  # noqa: D102
    @property
    def results(self) -> Mapping[CallId, ToolCallResult]: ...  # noqa: D102
    @property
    def batch(self) -> tuple[ToolCallRequest, ...]: ...  # noqa: D102


class KnownCalls:
    """The calls and results that are known when a message arrives, on a path and in addition to it."""

    def __init__(self, path: PathCalls | None = None) -> None:
        self._path = path
        self._calls: set[CallId] = set()
        self._results: dict[CallId, ToolCallResult] = {}
        self._used_again: set[CallId] = set()
        self._named: dict[str, list[list[CallId]]] = {}  # batches by an id from a document, newest first
        if path:
            self._name(path.batch, newest=True)

    def learn(self, message: Message) -> None:
        """Add a message that is newer than all known ones."""
        for one in unfolded(message):
            for call in one.tool_calls:
                self._calls.add(call.id)
                self._used_again.add(call.id)  # a reused id names the newer call
                self._results.pop(call.id, None)
            self._name(one.tool_calls, newest=True)
            for result in one.tool_results:
                self._take(result)

    def recall(self, message: Message) -> None:
        """Add a message that is older than all known ones; add older messages from the newest back."""
        for one in reversed(unfolded(message)):
            for result in one.tool_results:
                if not self.knows(result.tool_call_id):
                    self._take(result)
            self._calls.update(call.id for call in one.tool_calls)
            self._name(one.tool_calls, newest=False)

    def fresh(self, message: Message) -> Message | None:
        """Return what is new in a message, under the core's ids; None if nothing is new.

        Raise `InvalidMessage` for a result of an unknown call, or for a second, different result.
        """
        if message.role != "tool":
            return message
        new: list[tuple[int, ToolCallResult]] = []
        for place, given in enumerate(message.tool_results):
            result = self.resolved(given)
            before = self.result_of(result.tool_call_id)
            if before is None and not self.knows(result.tool_call_id):
                raise InvalidMessage(
                    f"no call {result.tool_call_id} awaits a result; append the assistant's message first"
                )
            if before is None:
                self._take(result)
                new.append((place, result))
            elif not before.says_same(result):
                raise InvalidMessage(
                    f"the call {result.tool_call_id} already has a different result; the first one is kept"
                )
        if not new:
            return None
        is_same = tuple(result for _, result in new) == message.tool_results
        return message if is_same else message.with_results(new)

    def resolved(self, result: ToolCallResult) -> ToolCallResult:
        """Return a result under the core's id of its call.

        A result may name its call by the provider's id, or by the id that a document gave it. If several
        calls match, it belongs to the newest one without a result (within a batch, the first); if all have
        results, to the newest with the same result. If no call matches, the result stays as it is.
        """
        batches = self._named.get(result.tool_call_id, [])
        if not batches or (self.knows(result.tool_call_id) and self.result_of(result.tool_call_id) is None):
            return result
        named = [call for batch in batches for call in batch]
        found = next((call for call in named if self.result_of(call) is None), None)
        if found is None and self.knows(result.tool_call_id):
            return result
        same = (call for call in named if (known := self.result_of(call)) and known.says_same(result))
        return structs.replace(result, tool_call_id=found or next(same, batches[0][-1]))

    def _name(self, batch: Iterable[ToolCallRequest], *, newest: bool) -> None:
        """Record the ids under which foreign documents know the calls of a batch."""
        names: dict[str, list[CallId]] = {}
        for call in batch:
            other = call.provider_id or named_call(call.name)  # a provider without ids names the tool
            for name in {other, call.parsed_id} - {None, call.id}:
                names.setdefault(str(name), []).append(call.id)
        for name, calls in names.items():
            batches = self._named.setdefault(name, [])
            batches.insert(0 if newest else len(batches), calls)

    def knows(self, call: CallId) -> bool:
        """Return True if a call with this id was made."""
        return call in self._calls or (self._path is not None and call in self._path.calls)

    def result_of(self, call: CallId) -> ToolCallResult | None:
        """Return the result that a call already has, if any."""
        if call in self._results or call in self._used_again:
            return self._results.get(call)
        return self._path.results.get(call) if self._path else None

    def _take(self, result: ToolCallResult) -> None:
        if self.result_of(result.tool_call_id) is None:
            self._results[result.tool_call_id] = result


def fresh(known: KnownCalls, messages: Iterable[Message]) -> list[Message]:
    """Return what is new in messages that are written together, by the rules of `KnownCalls.fresh`."""
    kept: list[Message] = []
    for message in messages:
        taken = known.fresh(message)
        if taken is not None:
            known.learn(taken)
            kept.append(taken)
    return kept


def unknown_calls(known: KnownCalls, messages: Iterable[Message]) -> set[CallId]:
    """Return the ids of calls that results name but that are not known yet."""
    results = (known.resolved(result) for message in messages for result in message.tool_results)
    calls = [call for message in messages for call in message.tool_calls]
    own = {id for call in calls for id in (call.id, call.provider_id, call.parsed_id)}
    return {one.tool_call_id for one in results if not known.knows(one.tool_call_id)} - own


def appended(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return the list with what is new in the message, by the rules of `KnownCalls.fresh`."""
    if any(one.id == message.id for one in messages):
        raise InvalidMessage(f"the list already contains message {message.id}")
    known = KnownCalls()
    if message.role == "tool":
        for one in messages:
            known.learn(one)
    return [*messages, *fresh(known, [message])]


# Calls of a list of messages.


def answered(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages with a visible error for each abandoned call, at the end of its round."""
    asked, known, replied = list[Message](), set[CallId](), False
    for message in messages:
        if message.role == "user" or (replied and message.role == "assistant"):
            for asking in asked:
                if lacking := [call for call in asking.tool_calls if call.id not in known]:
                    yield synthetic(asking, lacking, ABANDONED)
            asked, known, replied = [], set(), False
        yield message
        if message.role == "assistant":
            asked.append(message)
        known.update(result.tool_call_id for result in message.tool_results)
        replied = replied or message.role == "tool"


def is_shown_as(message: Message, id: str) -> bool:
    """Return True if a window shows a message under an id: its own, or the id of a late result in it."""
    results = enumerate(message.tool_results)
    return message.id == id or any(note(message, result, number).id == id for number, result in results)
