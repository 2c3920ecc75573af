"""The structure: any list of messages as turns and groups, made sound while it grows.

A turn is a user message and all that answers it; a group is what is kept or removed as a whole: one
message, or calls with every answer. ``items`` are the messages as they would be sent, but for what
is still under way; between two groups a cut is safe. Ids that were used before are told apart, and
whatever had to be mended is listed. ``sources`` says which tool message a part of one comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..entry import Answer
from ..ids import CallId, MessageId
from ..message import Message
from .rounds import Repair, Round, derived, in_call_order, note

__all__ = ["Structure"]


class Structure:
    """A conversation cut into turns and groups."""

    def __init__(self) -> None:
        self.length = 0
        self.head: list[Message] = []
        self.items: list[Message] = []
        self.groups: list[int] = []
        self.turns: list[int] = []
        self.repairs: list[Repair] = []
        self.answers: list[tuple[int, Answer]] = []
        self.sources: dict[str, tuple[Message, int | None]] = {}
        self._round = Round(self.sources)
        self._ids: set[str] = set()
        self._calls: set[CallId] = set()
        self._renamed: dict[CallId, CallId] = {}

    def extend(self, messages: Iterable[Message]) -> None:
        """Add many messages, as adding one after the other would."""
        rest = iter(messages)
        while (doubtful := self._add_sound(rest)) is not None:
            self.add(doubtful)

    def add(self, message: Message) -> None:
        """Add the next message of the conversation."""
        self.length += 1
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
        """Return all messages as they would be sent now, the round under way included."""
        return [*self.head, *self.items, *self._round.items()]

    def group_starts(self) -> Iterator[int]:
        """Give where groups start, newest first: the places where a cut is safe."""
        if self._round:
            yield len(self.items)
        yield from reversed(self.groups)

    def question(self, start: int) -> int | None:
        """Give the user message that opened the turn which a place lies in."""
        turn = bisect_right(self.turns, start) - 1
        return self.turns[turn] if turn >= 0 else None

    def outputs(self, place: int) -> list[int]:
        """Return the places of the tool messages in the finished group that a place lies in."""
        group = bisect_right(self.groups, place)
        start = self.groups[group - 1]
        end = self.groups[group] if group < len(self.groups) else len(self.items)
        return [index for index in range(start, end) if self.items[index].role == "tool"]

    def _add_sound(self, messages: Iterator[Message]) -> Message | None:
        """Add messages as long as nothing needs mending; give the first one that may need it."""
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
            if role == "tool" and not awaited and place > groups[-1] + 1:  # several messages answered
                start = groups[-1]
                items[start + 1 :] = in_call_order(items[start], items[start + 1 :])
        return None

    def _reopen(self) -> None:
        """Take the last calls out of the view again: more may come that answers them."""
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
        if message.tool_calls or self._round:
            self._round.ask(message)
        else:
            self._append([message])

    def _with_own_calls(self, message: Message) -> Message:
        """Rename calls whose ids were used before, since an id names one call in a request."""
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
            message = message.replace(tool_results=tuple(results))
        if self._round:
            complete, known = not self._round.open_calls, len(self._round.notes)
            self.repairs.extend(self._round.answer(message))
            if complete and (
                late := self._round.notes[known:]
            ):  # a group of its own: it may come after a cut
                del self._round.notes[known:]
                self._close()
                self._append(late)
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
                Repair(answer.call, "a call left behind is answered by a visible error") for answer in answers
            ]
            self._append(items)
            self._round = Round(self.sources)
            self._renamed = {}

    def _append(self, items: Sequence[Message]) -> None:
        """Take a finished group into the view."""
        self.groups.append(len(self.items))
        self.items += items
