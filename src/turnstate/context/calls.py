"""Calls and their results: which results a conversation takes, and what is shown for calls without one.

A result names its call by the core's id or by the provider's. The first real result of a call is taken,
however late; the same result again is ignored; a different one, or one of an unknown call, is refused
before anything is written. A path is not read as a whole for this: `KnownCalls` starts from what is known
of it and takes older messages one by one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from ..entry import ABANDONED
from ..errors import InvalidMessage
from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult
from .turns import note, synthetic

__all__ = [
    "KnownCalls",
    "PathCalls",
    "answered",
    "appended",
    "fresh",
    "is_shown_as",
    "unknown_calls",
]


class PathCalls(Protocol):
    """What a part of a path knows: its calls, their real results, and the newest batch of calls."""

    @property
    def calls(self) -> Container[CallId]: ...  # noqa: D102
    @property
    def results(self) -> Mapping[CallId, ToolCallResult]: ...  # noqa: D102
    @property
    def batch(self) -> tuple[ToolCallRequest, ...]: ...  # noqa: D102


class KnownCalls:
    """The calls and results that are known when a message comes: those of a path, and others beside."""

    def __init__(self, path: PathCalls | None = None) -> None:
        self._path = path
        self._calls: set[CallId] = set()
        self._results: dict[CallId, ToolCallResult] = {}
        self._used_again: set[CallId] = set()
        self._named: dict[str, list[list[CallId]]] = {}  # by an id of a document: batches, the newest first
        if path:
            self._name(path.batch, newest=True)

    def learn(self, message: Message) -> None:
        """Add a message that comes after all that are known."""
        for call in message.tool_calls:
            self._calls.add(call.id)
            self._used_again.add(call.id)  # an id that is used again names the newer call
            self._results.pop(call.id, None)
        self._name(message.tool_calls, newest=True)
        for result in message.tool_results:
            self._take(result)

    def recall(self, message: Message) -> None:
        """Add a message that is older than all that are known, the newest of them first."""
        for result in message.tool_results:
            if not self.knows(result.tool_call_id):
                self._take(result)
        self._calls.update(call.id for call in message.tool_calls)
        self._name(message.tool_calls, newest=False)

    def fresh(self, message: Message) -> Message | None:
        """Return what is new in a message, under the core's ids; None if all of it is known.

        Raise `InvalidMessage` for a result of an unknown call, or for a second, different result.
        """
        if message.role != "tool":
            return message
        new: list[ToolCallResult] = []
        for given in message.tool_results:
            result = self.resolved(given)
            before = self.result_of(result.tool_call_id)
            if before is None and not self.knows(result.tool_call_id):
                raise InvalidMessage(
                    f"no call {result.tool_call_id} awaits a result; append the assistant's message first"
                )
            if before is None:
                self._take(result)
                new.append(result)
            elif not before.says_same(result):
                raise InvalidMessage(
                    f"the call {result.tool_call_id} is answered already, with another result; "
                    "the first one stays"
                )
        if not new:
            return None
        return message if tuple(new) == message.tool_results else message.replace(tool_results=tuple(new))

    def resolved(self, result: ToolCallResult) -> ToolCallResult:
        """Return a result under the core's id of its call.

        A result may name its call as the provider does, or by the id that a document gave it. Of several such
        calls it is the newest that has no result yet, of one batch the first; if all have one, the newest
        with the same result. If there is none, the result stays as it is.
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
        """Note under which ids the documents of others know the calls of a batch."""
        names: dict[str, list[CallId]] = {}
        for call in batch:
            if call.provider_id is call.parsed_id is None:
                continue
            for name in {call.provider_id, call.parsed_id} - {None, call.id}:
                names.setdefault(str(name), []).append(call.id)
        for name, calls in names.items():
            batches = self._named.setdefault(name, [])
            batches.insert(0 if newest else len(batches), calls)

    def knows(self, call: CallId) -> bool:
        """Return True if the call was made."""
        return call in self._calls or (self._path is not None and call in self._path.calls)

    def result_of(self, call: CallId) -> ToolCallResult | None:
        """Return the result that a call has already."""
        if call in self._results or call in self._used_again:
            return self._results.get(call)
        return self._path.results.get(call) if self._path else None

    def _take(self, result: ToolCallResult) -> None:
        if self.result_of(result.tool_call_id) is None:
            self._results[result.tool_call_id] = result


def fresh(known: KnownCalls, messages: Iterable[Message]) -> list[Message]:
    """Return what is new in messages that are to be written together; `KnownCalls.fresh` says how."""
    kept: list[Message] = []
    for message in messages:
        taken = known.fresh(message)
        if taken is not None:
            known.learn(taken)
            kept.append(taken)
    return kept


def unknown_calls(known: KnownCalls, messages: Iterable[Message]) -> set[CallId]:
    """Return the calls that results name and that are not known yet."""
    results = (known.resolved(result) for message in messages for result in message.tool_results)
    calls = [call for message in messages for call in message.tool_calls]
    own = {id for call in calls for id in (call.id, call.provider_id, call.parsed_id)}
    return {one.tool_call_id for one in results if not known.knows(one.tool_call_id)} - own


def appended(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return the list with what is new in the message; `KnownCalls.fresh` says what is refused."""
    if any(one.id == message.id for one in messages):
        raise InvalidMessage(f"the list holds a message {message.id} already")
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
    """Return True if a window shows a message under an id: its own, or that of a late result in it."""
    results = enumerate(message.tool_results)
    return message.id == id or any(note(message, result, number).id == id for number, result in results)
