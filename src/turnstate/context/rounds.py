"""Rounds: what the assistant asked for and what came back, made sound while messages arrive.

A round is a run of assistant messages and the tool messages that follow it. Within a round answers
are put behind the calls they answer, in the order of the calls; a call that the conversation left
behind gets a visible error; what answers nothing (late, unknown, twice and different) stays as text
in its place. Nothing that was said is dropped, and nothing here depends on what comes later, so bytes
that were sent stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from .. import sent
from ..decision import ABANDONED, Answer
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest, ToolCallResult

__all__ = [
    "PENDING",
    "Repair",
    "Round",
    "answered",
    "derived",
    "in_call_order",
    "is_shown_as",
    "late_note",
    "note",
    "open_calls",
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
    text = (
        f"[Tool {label} that no open call awaits: {result.tool_call_id}]\n{sent.result_text(result.result)}"
    )
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


def open_calls(messages: Sequence[Message]) -> list[ToolCallRequest]:
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
