"""Rounds: what the assistant asked for and what came back, made sound while messages arrive.

A round is a run of assistant messages and the tool messages that follow it. Within a round answers
are put behind the calls they answer, in the order of the calls; a call that the conversation left
behind gets a visible error; what answers nothing (late, unknown, twice and different) stays as text
in its place. Nothing that was said is dropped, and nothing here depends on what comes later, so bytes
that were sent stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Reversible, Sequence
from typing import Protocol

import msgspec
from msgspec import structs

from .. import wire_text
from ..entry import ABANDONED, Answer
from ..errors import InvalidMessage
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult

__all__ = [
    "PENDING",
    "Known",
    "KnownCalls",
    "Repair",
    "Round",
    "answered",
    "appended",
    "by_provider",
    "derived",
    "fresh",
    "in_call_order",
    "is_shown_as",
    "late_note",
    "note",
    "open_calls",
    "unknown_calls",
]

PENDING = "[Still running.]"


class Repair(msgspec.Struct, frozen=True):
    """Something that had to be mended: the message or call concerned, and what was done."""

    id: str
    text: str


def derived(*parts: str) -> str:
    """Give an id that follows from what it stands for."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def note(message: Message, result: ToolCallResult, number: int) -> Message:
    """Show a result that answers nothing as text, in its own place."""
    label = "error" if result.is_error else "result"
    heading = f"[Tool {label} that no open call awaits: {result.tool_call_id}]"
    text = f"{heading}\n{wire_text.result_text(result.result)}"
    return Message.user(text, id=derived("note", message.id, str(number)), timestamp=message.timestamp)


def is_shown_as(message: Message, id: str) -> bool:
    """Tell whether a window shows a message under an id: its own, or that of a late result in it."""
    results = enumerate(message.tool_results)
    return message.id == id or any(note(message, result, number).id == id for number, result in results)


def late_note(messages: Sequence[Message]) -> Message | None:
    """Return the note that shows a late result if the last message brought one."""
    if not messages or messages[-1].role != "tool":
        return None
    awaited = {call.id for call in open_calls(messages[:-1])}
    results = enumerate(messages[-1].tool_results)
    late = [note(messages[-1], one, number) for number, one in results if one.tool_call_id not in awaited]
    return late[-1] if late else None


def open_calls(messages: Reversible[Message]) -> list[ToolCallRequest]:
    """Return the calls of the last round that await a result, in their order."""
    answered, found, asked = set[CallId](), list[ToolCallRequest](), False
    for message in reversed(messages):
        if message.role == "user" or (asked and message.role == "tool"):
            break
        asked = asked or message.role == "assistant"
        answered.update(result.tool_call_id for result in message.tool_results)
        found += reversed(message.tool_calls)
    return [call for call in reversed(found) if call.id not in answered]


def answered(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages with a visible error for each call that was left behind, at the end of its round."""
    asked, known, replied = list[Message](), set[CallId](), False
    for message in messages:
        if message.role == "user" or (replied and message.role == "assistant"):
            for asking in asked:
                if lacking := [call for call in asking.tool_calls if call.id not in known]:
                    yield _synthetic(asking, lacking, ABANDONED)
            asked, known, replied = [], set(), False
        yield message
        if message.role == "assistant":
            asked.append(message)
        known.update(result.tool_call_id for result in message.tool_results)
        replied = replied or message.role == "tool"


class Round:
    """One round under way. `items` gives it as it would be sent now; `close` as it stays.

    ``sources`` takes the tool message that each portion and note comes from, and the place of a note's
    result in it.
    """

    def __init__(self, sources: dict[str, tuple[Message, int | None]]) -> None:
        self._sources = sources
        self.assistants: list[Message] = []
        self.answered = False
        self._owner: dict[CallId, int] = {}
        self._results: dict[CallId, ToolCallResult] = {}
        self._answers: list[list[Message]] = []
        self.notes: list[Message] = []

    def __bool__(self) -> bool:
        return bool(self.assistants)

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls that await an answer."""
        calls = (call for message in self.assistants for call in message.tool_calls)
        return [call for call in calls if call.id not in self._results]

    def ask(self, message: Message) -> None:
        """Add a message of the assistant."""
        self._owner.update((call.id, len(self.assistants)) for call in message.tool_calls)
        self.assistants.append(message)
        self._answers.append([])

    def notice(self, message: Message) -> None:
        """Add what was said while the calls were under way; it stands behind their answers."""
        self.notes.append(message)

    def answer(self, message: Message) -> Iterator[Repair]:
        """Add a tool message; what fits no open call becomes text behind the answers."""
        self.answered = True
        taken: dict[int, list[ToolCallResult]] = {}
        for number, result in enumerate(message.tool_results):
            call, before = result.tool_call_id, self._results.get(result.tool_call_id)
            if call in self._owner and before is None:
                self._results[call] = result
                taken.setdefault(self._owner[call], []).append(result)
            elif before is not None and (before.result, before.is_error) == (result.result, result.is_error):
                yield Repair(call, "the same result stood twice and is sent once")
            else:
                self.notes.append(noted := note(message, result, number))
                self._sources[noted.id] = (message, number)
                yield Repair(call, "a result that no open call awaits is sent as text")
        for owner, results in taken.items():
            portion = message
            if len(results) < len(message.tool_results):
                portion = _portion(message, owner, tuple(results))
                self._sources[portion.id] = (message, None)
            self._answers[owner].append(portion)

    def items(self, missing: str = PENDING) -> list[Message]:
        """Give the round as it is sent: each call message, its answers, then what was noted."""
        view: list[Message] = []
        for message, answers in zip(self.assistants, self._answers, strict=True):
            view += [message, *in_call_order(message, answers)]
            lacking = [call for call in message.tool_calls if call.id not in self._results]
            if lacking:
                view.append(_synthetic(message, lacking, missing))
        return view + self.notes

    def close(self) -> tuple[list[Message], list[Answer]]:
        """Give the round as it stays, and the answers that had to be given for calls left behind."""
        answers = [Answer(call=call.id, text=ABANDONED) for call in self.open_calls]
        return self.items(ABANDONED), answers


def in_call_order(asked: Message, answers: Sequence[Message]) -> list[Message]:
    """Sort tool messages by the calls that they answer, so that the order of arrival changes no byte."""
    if len(answers) < 2:
        return list(answers)
    places = {call.id: place for place, call in enumerate(asked.tool_calls)}
    return sorted(
        answers, key=lambda answer: min(places[result.tool_call_id] for result in answer.tool_results)
    )


def _portion(message: Message, owner: int, results: tuple[ToolCallResult, ...]) -> Message:
    id = MessageId(derived("portion", message.id, str(owner)))
    return message.replace(id=id, tool_results=results)


def _synthetic(message: Message, calls: list[ToolCallRequest], text: str) -> Message:
    results = [ToolCallResult(tool_call_id=call.id, result=text, is_error=True) for call in calls]
    id = derived("answer", message.id, *(call.id for call in calls))
    return Message.tool(results, id=id, timestamp=message.timestamp)


# Adding to a list of messages: what answers nothing is refused before it is there.


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
        if not _append_is_known(result, calls, answers):
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


def _append_is_known(
    result: ToolCallResult, calls: set[CallId], answers: dict[CallId, ToolCallResult]
) -> bool:
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


# Answering: which results a conversation takes.


class Known(Protocol):
    """What a part of a path knows: its calls, their real results, and the newest batch of calls."""

    @property
    def calls(self) -> Container[CallId]: ...  # noqa: D102
    @property
    def results(self) -> Mapping[CallId, ToolCallResult]: ...  # noqa: D102
    @property
    def batch(self) -> tuple[ToolCallRequest, ...]: ...  # noqa: D102


class KnownCalls:
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


def unknown_calls(exchange: KnownCalls, messages: Iterable[Message]) -> set[CallId]:
    """Give the calls that results speak of and that are not known yet."""
    results = (exchange.resolved(result) for message in messages for result in message.tool_results)
    calls = [call for message in messages for call in message.tool_calls]
    own = {call.id for call in calls} | {call.provider_id for call in calls}
    return {one.tool_call_id for one in results if not exchange.knows(one.tool_call_id)} - own


def fresh(exchange: KnownCalls, messages: Iterable[Message]) -> list[Message]:
    """Give what is to be written: results under the core's ids, known ones left out, others refused."""
    kept = list[Message]()
    for message in messages:
        taken = _fresh(exchange, message)
        if taken is not None:
            exchange.learn(taken)
            kept.append(taken)
    return kept


def _fresh(exchange: KnownCalls, message: Message) -> Message | None:
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


def _is_known(exchange: KnownCalls, result: ToolCallResult) -> bool:
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
