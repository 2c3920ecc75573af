"""Rounds: calls and their answers, in an order that every provider accepts.

A round is a run of assistant messages and the tool messages that follow it. Within a round, answers are
placed after the calls that they answer, in the order of the calls. An abandoned call gets a visible error. A
result that answers nothing (late, unknown, or a second, different one) stays as text in its place, unless the
provider keeps the call itself (`formats.continues`, `formats.refers`). No content is dropped, and nothing
here depends on what comes later, so bytes that were sent never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from .. import wire_text
from ..entry import ABANDONED, PENDING, Answer
from ..formats import refers
from ..ids import CallId, MessageId, derived
from ..message import Message, ToolCallRequest, ToolCallResult


class Repair(msgspec.Struct, frozen=True):
    """Something that was repaired: the message or call concerned, and what was done."""

    id: str
    text: str


def note(message: Message, result: ToolCallResult, number: int) -> Message:
    """Return a result that answers nothing as a text message, to send in its place."""
    label = "error" if result.is_error else "result"
    heading = f"[Tool {label} that no open call awaits: {result.tool_call_id}]"
    text = f"{heading}\n{wire_text.result_text(result.result)}"
    return Message.user(text, id=derived("note", message.id, str(number)), timestamp=message.timestamp)


def elsewhere(messages: Sequence[Message], format: str) -> list[Message]:
    """Return messages as another provider gets them: results whose calls only their own has become text."""
    asked = {call.id for message in messages for call in message.tool_calls}
    shown: list[Message] = []
    for message in messages:
        kept = message.native is None or message.native.format == format
        if kept or asked.issuperset(result.tool_call_id for result in message.tool_results):
            shown.append(message)
            continue
        known = [one for one in enumerate(message.tool_results) if one[1].tool_call_id in asked]
        shown += [message.with_results(known)] if known else []
        results = enumerate(message.tool_results)
        shown += [note(message, one, number) for number, one in results if one.tool_call_id not in asked]
    return shown


class Round:
    """A round in progress. `items` returns it as it would be sent now, `close` in its final form.

    ``sources`` receives the tool message that each portion and note comes from, and the index of a note's
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
        self._referring: int | None = None  # the newest message that refers to calls at the provider

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls that await an answer."""
        calls = (call for message in self.assistants for call in message.tool_calls)
        return [call for call in calls if call.id not in self._results]

    def ask(self, message: Message) -> None:
        """Add an assistant message."""
        self._owner.update((call.id, len(self.assistants)) for call in message.tool_calls)
        if refers(message):
            self._referring = len(self.assistants)
        self.assistants.append(message)
        self._answers.append([])

    def notice(self, message: Message) -> None:
        """Add a message that arrived while calls were open; it is sent after their answers."""
        self.notes.append(message)

    def answer(self, message: Message, *, hosted: bool = False) -> Iterator[Repair]:
        """Add a tool message; results that match no open call become text after the answers.

        If it is `hosted`, the provider made it within a reply, which may go on before the caller answers.
        """
        self.answered = self.answered or not hosted
        taken: dict[int, list[tuple[int, ToolCallResult]]] = {}
        for number, result in enumerate(message.tool_results):
            call, before = result.tool_call_id, self._results.get(result.tool_call_id)
            owner = self._owner.get(call, self._referring)
            if owner is not None and before is None:
                self._results[call] = result
                taken.setdefault(owner, []).append((number, result))
            elif before is not None and (before.result, before.is_error) == (result.result, result.is_error):
                yield Repair(call, "the same result came twice and is sent once")
            else:
                self.notes.append(noted := note(message, result, number))
                self._sources[noted.id] = (message, number)
                yield Repair(call, "a result that no open call awaits is sent as text")
        # Each assistant message gets its own answers, although they may have come in one tool message.
        for owner, results in taken.items():
            portion = message
            if len(results) < len(message.tool_results):
                portion = _portion(message, owner, results)
                self._sources[portion.id] = (message, None)
            self._answers[owner].append(portion)

    def items(self, missing: str = PENDING) -> list[Message]:
        """Return the round as it is sent: each assistant message with its answers, then the notes."""
        view: list[Message] = []
        for message, answers in zip(self.assistants, self._answers, strict=True):
            view += [message, *in_call_order(message, answers)]
            lacking = [call for call in message.tool_calls if call.id not in self._results]
            if lacking:
                view.append(synthetic(message, lacking, missing))
        return view + self.notes

    def close(self) -> tuple[list[Message], list[Answer]]:
        """Return the round in its final form, and the answers given for abandoned calls."""
        answers = [Answer(call=call.id, text=ABANDONED) for call in self.open_calls]
        return self.items(ABANDONED), answers


def in_call_order(asked: Message, answers: Sequence[Message]) -> list[Message]:
    """Sort tool messages by the calls that they answer, so the order of arrival does not change a byte."""
    if len(answers) < 2:
        return list(answers)
    places = {call.id: place for place, call in enumerate(asked.tool_calls)}
    return sorted(
        answers,
        key=lambda answer: min(
            places.get(result.tool_call_id, len(places)) for result in answer.tool_results
        ),
    )


def _portion(message: Message, owner: int, results: Sequence[tuple[int, ToolCallResult]]) -> Message:
    id = MessageId(derived("portion", message.id, str(owner)))
    return msgspec.structs.replace(message.with_results(results), id=id)


def synthetic(message: Message, calls: list[ToolCallRequest], text: str) -> Message:
    """Return a tool message with a visible error for calls of a message that have no result."""
    results = [ToolCallResult(tool_call_id=call.id, result=text, is_error=True) for call in calls]
    id = derived("answer", message.id, *(call.id for call in calls))
    return Message.tool(results, id=id, timestamp=message.timestamp)
