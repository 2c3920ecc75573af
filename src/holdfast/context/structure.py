"""The structure: any list of messages as turns and groups, made sound while it grows.

A turn is a user message and all that answers it; a group is what is kept or removed as a whole: one
message, or calls with every answer. ``items`` are the messages as they would be sent, but for what
is still under way; between two groups a cut is safe. Ids that were used before are told apart, and
whatever had to be mended is listed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..decision import Answer
from ..ids import CallId, MessageId
from ..message import Message
from .rounds import Repair, Round, derived, note

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
        self._round = Round()
        self._ids: set[str] = set()
        self._calls: set[CallId] = set()
        self._renamed: dict[CallId, CallId] = {}

    def extend(self, messages: Iterable[Message]) -> None:
        """Add many messages, as adding one after the other would."""
        listed, place = list(messages), 0
        while place < len(listed):
            taken = self._add_sound(listed, place)
            if not taken:
                self.add(listed[place])
            place += taken or 1

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

    def group_starts(self) -> Iterator[int]:
        """Give where groups start, newest first: the places where a cut is safe."""
        if self._round:
            yield len(self.items)
        yield from reversed(self.groups)

    def question(self, start: int) -> int | None:
        """Give the user message that opened the turn which a place lies in."""
        turn = bisect_right(self.turns, start) - 1
        return self.turns[turn] if turn >= 0 else None

    def _add_sound(self, messages: list[Message], place: int) -> int:
        """Take words, or calls with their answers, where nothing needs mending; tell how many messages."""
        message = messages[place]
        if self._round or message.role in ("system", "tool"):
            return 0
        if message.tool_calls:
            return self._add_sound_group(messages, place)
        if message.id in self._ids:
            return 0
        self._ids.add(message.id)
        self.length += 1
        if message.role == "user":
            self.turns.append(len(self.items))
        self.groups.append(len(self.items))
        self.items.append(message)
        return 1

    def _add_sound_group(self, messages: list[Message], place: int) -> int:
        end = place + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        group, asked = messages[place:end], messages[place].tool_calls
        ids, calls = {message.id for message in group}, {call.id for call in asked}
        answers = [result.tool_call_id for message in group for result in message.tool_results]
        once = len(calls) == len(asked) == len(answers) and len(ids) == len(group)
        fresh = self._calls.isdisjoint(calls) and self._ids.isdisjoint(ids)
        if end == len(messages) or not once or calls != set(answers) or not fresh:
            return 0
        self._calls |= calls
        self._ids |= ids
        self.length += len(group)
        self._append(group)
        return len(group)

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
            self.repairs.extend(self._round.answer(message))
            return
        notes = [note(message, result, number) for number, result in enumerate(message.tool_results)]
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
            self._round = Round()
            self._renamed = {}

    def _append(self, items: Sequence[Message]) -> None:
        """Take a finished group into the view."""
        self.groups.append(len(self.items))
        self.items += items
