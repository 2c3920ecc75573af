"""The tally: a conversation made sound and counted, message by message.

It holds the view of a path as it would be sent: answers behind their calls, long output reduced,
broken places mended, cut into turns and groups, with running totals. Adding a message costs what
the message costs; any total is a subtraction. A tally that grew message by message equals one that
was built at once, so the incremental window and the pure one are the same code over the same value.
Counting is lazy and starts at the newest message: what no window reaches is never counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..decision import Answer
from ..ids import CallId, MessageId
from ..message import Message
from ..tokens import Counter, message_cost
from .ledger import Ledger
from .mask import MASK, masked, masked_cost
from .reduce import Limits, reduced
from .rounds import Repair, Round, derived, note

__all__ = ["Tally"]


class Tally:
    """A conversation as it would be sent, with its totals."""

    def __init__(self, counter: Counter, limits: Limits) -> None:
        self.counter = counter
        self.limits = limits
        self.length = 0
        self.head: list[Message] = []
        self.items: list[Message] = []
        self.groups: list[int] = []
        self.turns: list[int] = []
        self.repairs: list[Repair] = []
        self.reduced_ids: dict[str, None] = {}
        self.answers: list[tuple[int, Answer]] = []
        self._round = Round()
        self._index: dict[str, int] = {}
        self._ids: set[str] = set()
        self._calls: set[CallId] = set()
        self._renamed: dict[CallId, CallId] = {}
        self._tail: list[Message] | None = None
        self._ready: dict[str, tuple[Message, Message, int]] = {}
        self._ledger = Ledger(0, self._finished)
        self._masks: dict[int, Message] = {}
        self._line = counter.count(MASK).tokens

    @classmethod
    def of(cls, messages: Iterable[Message], counter: Counter, limits: Limits) -> Tally:
        """Build the tally of a whole conversation, counting nothing yet."""
        tally, listed, place = cls(counter, limits), list(messages), 0
        while place < len(listed):
            taken = tally._add_sound(listed, place)
            if not taken:
                tally.add(listed[place])
            place += taken or 1
        tally._ledger = Ledger(len(tally.items), tally._finished)
        return tally

    def add(self, message: Message) -> None:
        """Add the next message of the conversation."""
        self.length += 1
        self._tail = None
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

    @property
    def tail(self) -> list[Message]:
        """The round under way, as it would be sent now."""
        if self._tail is None:
            self._tail = [self._prepared(message)[0] for message in self._round.items()]
        return self._tail

    @property
    def end(self) -> int:
        """The number of messages that would be sent if nothing were cut."""
        return len(self.items) + len(self.tail)

    def group_starts(self) -> Iterator[int]:
        """Give where groups start, newest first: the places where a cut is safe."""
        if self._round:
            yield len(self.items)
        yield from reversed(self.groups)

    def question(self, start: int) -> int | None:
        """Give the user message that opened the turn which a place lies in."""
        turn = bisect_right(self.turns, start) - 1
        return self.turns[turn] if turn >= 0 else None

    def total(self, start: int) -> int:
        """Give the tokens of everything from a place to the end."""
        tail = sum(self._prepared(message)[1] for message in self.tail[max(0, start - len(self.items)) :])
        return self._ledger.between(min(start, len(self.items)), len(self.items)) + tail

    def between(self, start: int, end: int) -> int:
        """Give the tokens of the finished messages between two places."""
        return self._ledger.between(start, end)

    def cost(self, index: int) -> int:
        """Give the tokens of one message of the view."""
        if index >= len(self.items):
            return self._prepared(self.tail[index - len(self.items)])[1]
        if index < self._ledger.first:
            return self._prepared(self.items[index])[1]  # alone: what lies between need not be counted
        return self._ledger.between(index, index + 1)

    def exceeds(self, start: int, room: int) -> bool:
        """Tell whether the messages from a place on take more than the room, counting no more than needed."""
        left = room - sum(self._prepared(message)[1] for message in self.tail)
        return self._ledger.exceeds(start, len(self.items), left)

    def reach(self, room: int) -> int:
        """Give the earliest group from which on everything fits into the room."""
        self.exceeds(0, room)
        first = bisect_left(self.groups, self._ledger.first)
        fitting = bisect_left(self.groups, True, lo=first, key=lambda start: self.total(start) <= room)
        return self.groups[fitting] if fitting < len(self.groups) else len(self.items)

    def view(self, start: int, hidden: Iterable[int] = ()) -> list[Message]:
        """Give the messages from a place to the end, old output hidden where asked."""
        self.total(start)
        view = self.items[start:] + self.tail[max(0, start - len(self.items)) :]
        for index in hidden:
            if index >= start:
                view[index - start] = self.hidden(index)
        return view

    def saved(self, index: int) -> int:
        """Give the tokens that hiding the output of a tool message saves."""
        return self.cost(index) - masked_cost(self.items[index], self._line)

    def hidden(self, index: int) -> Message:
        """Give a tool message with its output hidden."""
        if index not in self._masks:
            self._masks[index] = masked(self.items[index])
        return self._masks[index]

    def place(self, id: str) -> int | None:
        """Give the place of a message in the view."""
        for index in range(len(self._index), len(self.items)):
            self._index[self.items[index].id] = index
        if id in self._index:
            return self._index[id]
        return next((len(self.items) + i for i, message in enumerate(self.tail) if message.id == id), None)

    def at(self, index: int) -> Message:
        """Give one message of the view."""
        if index >= len(self.items):
            return self.tail[index - len(self.items)]
        return self.items[index] if index >= self._ledger.first else self._prepared(self.items[index])[0]

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

    def _prepared(self, message: Message) -> tuple[Message, int]:
        """Reduce and count a message that may still change its place, once."""
        known = self._ready.get(message.id)
        if known is None or (known[0] is not message and known[1] is not message):
            known = self._ready[message.id] = (message, *self._measured(message))
        return known[1], known[2]

    def _finished(self, index: int) -> int:
        """Reduce and count a message of the view for good."""
        message = self.items[index]
        known = self._ready.pop(message.id, None)
        if known is not None and (known[0] is message or known[1] is message):
            self.items[index], cost = known[1:]
        else:
            self.items[index], cost = self._measured(message)
        return cost

    def _measured(self, message: Message) -> tuple[Message, int]:
        short = reduced(message, self.counter, self.limits)
        if short is not message:
            self.reduced_ids[message.id] = None
        return short, message_cost(short, self.counter).tokens
