"""Turns and groups: make any list of messages valid for every provider while it grows.

A turn is a user message and everything that answers it. A group is kept or removed as a whole: one message,
or calls with all their answers. ``Structure.items`` are the messages as they would be sent, without the round
in progress; a cut between two groups is safe. Duplicate ids are made unique, and all repairs are listed.
``sources`` maps a part of a tool message to the message it comes from. ``summaries`` are the summaries found
among the messages: they are not sent at their own position.

A round is a run of assistant messages and the tool messages that follow it. Within a round, answers are
placed after the calls that they answer, in the order of the calls. An abandoned call gets a visible error. A
result that answers nothing (late, unknown, or a second, different one) stays as text in its place, unless the
provider keeps the call itself (`formats.continues`, `formats.refers`). No content is dropped, and nothing
here depends on what comes later, so bytes that were sent never change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from .. import wire_text
from ..entry import ABANDONED, PENDING, Answer
from ..formats import continues, refers, unfolded
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

    def __bool__(self) -> bool:
        return bool(self.assistants)

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


class Structure:
    """A conversation divided into turns and groups."""

    def __init__(self) -> None:
        self.length = 0
        self.head: list[Message] = []
        self.summaries: list[Message] = []
        self.items: list[Message] = []
        self.groups: list[int] = []
        self.turns: list[int] = []
        self.repairs: list[Repair] = []
        self.answers: list[tuple[int, Answer]] = []
        self.sources: dict[str, tuple[Message, int | None]] = {}
        self.unfolded: set[str] = set()  # the ids of messages that the log holds within others
        self._round = Round(self.sources)
        self._assistants: list[int] = []  # their places, up to `_read`
        self._read = 0
        self._ids: set[str] = set()
        self._calls: set[CallId] = set()
        self._renamed: dict[CallId, CallId] = {}

    @property
    def is_continued(self) -> bool:
        """True if the provider keeps what came before the first message."""
        first = self.head or self.items
        return bool(first) and continues(first[0])

    def extend(self, messages: Iterable[Message]) -> None:
        """Add many messages, with the same result as adding them one by one."""
        rest = iter(messages)
        while (doubtful := self._add_sound(rest)) is not None:
            self.add(doubtful)

    def add(self, message: Message) -> None:
        """Add the next message of the conversation."""
        self.length += 1
        for one in unfolded(message):
            if one is not message:
                self.unfolded.add(one.id)
            self._add(one)

    def _add(self, message: Message) -> None:
        if message.kind == "summary":
            self.summaries.append(message)
            return
        if message.id in self._ids:
            self.repairs.append(
                Repair(message.id, "two messages had this id; the later one is sent under another")
            )
            message = msgspec.structs.replace(
                message, id=MessageId(derived("again", message.id, str(self.length)))
            )
        self._ids.add(message.id)
        match message.role:
            case "user":
                self._close()
                self.turns.append(len(self.items))
                self._append([message])
            case "system":
                self._add_system(message)
            case "assistant":
                self._add_assistant(message)
            case "tool":
                self._add_tool(message)

    def sent(self) -> list[Message]:
        """Return all messages as they would be sent now, including the round in progress."""
        return [*self.head, *self.items, *self._round.items()]

    def group_starts(self) -> Iterator[int]:
        """Yield the starts of groups, newest first: the places where a cut is safe."""
        if self._round:
            yield len(self.items)
        yield from reversed(self.groups)

    def question(self, start: int) -> int | None:
        """Return the place of the user message that opened the turn at a place, if there is one."""
        turn = bisect_right(self.turns, start) - 1
        return self.turns[turn] if turn >= 0 else None

    def exchanges(self, start: int) -> int:
        """Return the number of exchanges from a place on; each ends with an assistant message."""
        for place in range(self._read, len(self.items)):
            if self.items[place].role == "assistant":
                self._assistants.append(place)
        self._read = len(self.items)
        finished = len(self._assistants) - bisect_left(self._assistants, start)
        return finished + len(self._round.assistants)

    def outputs(self, place: int) -> list[int]:
        """Return the places of the tool messages in the finished group that contains a place."""
        group = bisect_right(self.groups, place)
        start = self.groups[group - 1]
        end = self.groups[group] if group < len(self.groups) else len(self.items)
        return [index for index in range(start, end) if self.items[index].role == "tool"]

    def _add_sound(self, messages: Iterator[Message]) -> Message | None:
        """Add messages while nothing needs repair; return the first one that may need it."""
        if self._round:
            return next(messages, None)
        before = len(self.items)
        doubtful = self._take_sound(messages)
        self.length += len(self.items) - before
        if len(self.items) > before and self.items[self.groups[-1]].tool_calls:
            self._reopen()
        return doubtful

    def _take_sound(self, messages: Iterator[Message]) -> Message | None:
        items, groups, turns, ids, calls = self.items, self.groups, self.turns, self._ids, self._calls
        awaited: set[CallId] = set()
        for place, message in enumerate(messages, start=len(items)):
            role = message.role
            if message.id in ids:
                return message
            if message.native is not None and (refers(message) or unfolded(message)[0] is not message):
                return message
            if role == "tool":
                for result in message.tool_results:
                    if result.tool_call_id not in awaited:
                        return message
                    awaited.remove(result.tool_call_id)
            elif awaited or role == "system":
                return message
            else:
                if message.tool_calls:
                    for call in message.tool_calls:
                        if call.id in calls:
                            return message
                        awaited.add(call.id)
                    calls |= awaited
                elif role == "user":
                    turns.append(place)
                groups.append(place)
            ids.add(message.id)
            items.append(message)
            if role == "tool" and not awaited and place > groups[-1] + 1:  # several messages answer the calls
                start = groups[-1]
                items[start + 1 :] = in_call_order(items[start], items[start + 1 :])
        return None

    def _reopen(self) -> None:
        """Remove the last calls from the view again: more answers to them may come."""
        start = self.groups.pop()
        asked, *answers = self.items[start:]
        del self.items[start:]
        self._round.ask(asked)
        for message in answers:
            self.repairs.extend(self._round.answer(message))

    def _add_system(self, message: Message) -> None:
        if not self.items and not self._round:
            self.head.append(message)
        elif self._round.open_calls:
            self._round.notice(message)
        else:
            self._close()
            self._append([message])

    def _add_assistant(self, message: Message) -> None:
        if self._round.answered or not self._round.open_calls:
            self._close()
        message = self._with_own_calls(message)
        if message.tool_calls or self._round or refers(message):
            self._round.ask(message)
        else:
            self._append([message])

    def _with_own_calls(self, message: Message) -> Message:
        """Rename calls whose ids were used before, since an id must be unique in a request."""
        own = {call.id for call in message.tool_calls}
        if len(own) == len(message.tool_calls) and self._calls.isdisjoint(own):
            self._calls |= own
            return message
        calls = list(message.tool_calls)
        for number, call in enumerate(calls):
            if call.id in self._calls:
                new = CallId("call_" + derived("call", message.id, call.id, str(number)))
                self._renamed[call.id] = new
                self.repairs.append(Repair(call.id, f"two calls had this id; the later one is sent as {new}"))
                calls[number] = msgspec.structs.replace(call, id=new, provider_id=None)
            self._calls.add(calls[number].id)
        return message.replace(tool_calls=tuple(calls))

    def _add_tool(self, message: Message) -> None:
        if any(result.tool_call_id in self._renamed for result in message.tool_results):
            results = (
                msgspec.structs.replace(
                    one, tool_call_id=self._renamed.get(one.tool_call_id, one.tool_call_id)
                )
                for one in message.tool_results
            )
            message = message.with_results(list(enumerate(results)))
        if self._round:
            complete, known = not self._round.open_calls, len(self._round.notes)
            self.repairs.extend(self._round.answer(message, hosted=message.id in self.unfolded))
            if complete and (
                late := self._round.notes[known:]
            ):  # a group of its own: it may come after a cut
                del self._round.notes[known:]
                self._close()
                self._append(late)
            return
        if self.is_continued or (not self.head and not self.items and continues(message)):
            self._append([message])
            return
        notes = [note(message, result, number) for number, result in enumerate(message.tool_results)]
        self.sources.update((one.id, (message, number)) for number, one in enumerate(notes))
        self.repairs.extend(
            Repair(result.tool_call_id, "a result that no open call awaits is sent as text")
            for result in message.tool_results
        )
        self._append(notes)

    def _close(self) -> None:
        if self._round:
            items, answers = self._round.close()
            self.answers += [(len(self.items), answer) for answer in answers]
            self.repairs += [
                Repair(answer.call, "an abandoned call is answered by a visible error") for answer in answers
            ]
            self._append(items)
            self._round = Round(self.sources)
            self._renamed = {}

    def _append(self, items: Sequence[Message]) -> None:
        """Add a finished group to the view."""
        self.groups.append(len(self.items))
        self.items += items
