"""The tally: the structure of a conversation, reduced and counted, message by message.

It is what would be sent, with running totals. Adding a message costs what the message costs; any
total is a subtraction. A tally that grew message by message equals one that was built at once, so
the incremental window and the pure one are the same code over the same value. Counting is lazy and
starts at the newest message: what no window reaches is never counted. Where a store holds the whole
outputs (``stored``), the frames of reduced ones say under which id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import partial

from ..message import Message
from ..tokens import Counter
from ..tokens.cost import Meter
from .ledger import Ledger
from .mask import MASK, masked, masked_cost
from .mend import mended
from .places import Places
from .reduce import Limits, output_id, reduced
from .structure import Structure

__all__ = ["Tally"]


class Tally(Structure):
    """A conversation as it would be sent, with its totals."""

    def __init__(self, counter: Counter, limits: Limits, *, stored: bool = False) -> None:
        super().__init__()
        self.counter = counter
        self.limits = limits
        self.stored = stored
        self.reduced_ids: dict[str, None] = {}
        self.mended_ids: dict[str, str] = {}
        self._places = Places(self.items, 0)
        self._tail: tuple[int, list[Message]] = (0, [])
        self._ready: dict[str, tuple[Message, Message, int]] = {}
        self._ledger = Ledger(0, self._finished)
        self._masks: dict[int, Message] = {}
        self._meter = Meter(counter)
        self._line = counter.count(MASK).tokens

    @classmethod
    def of(
        cls,
        messages: Iterable[Message],
        counter: Counter,
        limits: Limits,
        *,
        stored: bool = False,
        counts: Iterable[tuple[Message, int]] = (),
    ) -> Tally:
        """Build the tally of a whole conversation, counting nothing yet; some counts may be known."""
        tally = cls(counter, limits, stored=stored)
        for message, tokens in counts:
            tally.foresee(message, tokens)
        tally.extend(messages)
        tally._ledger = Ledger(len(tally.items), tally._finished)
        tally._places = Places(tally.items, len(tally.items))
        return tally

    def foresee(self, message: Message, tokens: int) -> None:
        """Take the count of a message that is about to be added and that needs no reduction."""
        self._ready[message.id] = (message, message, tokens)

    @property
    def tail(self) -> list[Message]:
        """The round under way, as it would be sent now."""
        made_at, tail = self._tail
        if made_at != self.length:
            tail = [self._prepared(message)[0] for message in self._round.items()]
            self._tail = (self.length, tail)
        return tail

    @property
    def end(self) -> int:
        """The number of messages that would be sent if nothing were cut."""
        return len(self.items) + len(self.tail)

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
        tail = self.tail[max(0, start - len(self.items)) :]
        left = room - sum(self._prepared(message)[1] for message in tail)
        return self._ledger.exceeds(min(start, len(self.items)), len(self.items), left)

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
        finished = self._places.of(id)
        if finished is not None:
            return finished
        return next((len(self.items) + i for i, message in enumerate(self.tail) if message.id == id), None)

    def at(self, index: int) -> Message:
        """Give one message of the view."""
        if index >= len(self.items):
            return self.tail[index - len(self.items)]
        return self.items[index] if index >= self._ledger.first else self._prepared(self.items[index])[0]

    def _prepared(self, message: Message) -> tuple[Message, int]:
        """Reduce and count a message that may still change its place, once."""
        known = self._ready.get(message.id)
        if known is None or (known[0] is not message and known[1] is not message):
            known = self._ready[message.id] = (message, *self._measured(message))
        elif known[0] is known[1]:
            known = self._ready[message.id] = (message, *self._sendable(message, known[2]))
        return known[1:]

    def _finished(self, index: int) -> int:
        """Reduce and count a message of the view for good."""
        message = self.items[index]
        known = self._ready.pop(message.id, None)
        if known is not None and (known[0] is message or known[1] is message):
            self.items[index], cost = self._sendable(*known[1:])
        else:
            self.items[index], cost = self._measured(message)
        return cost

    def _measured(self, message: Message) -> tuple[Message, int]:
        handle = partial(output_id, message) if self.stored else None
        short = reduced(message, self.counter, self.limits, handle=handle)
        if short is not message:
            self.reduced_ids[message.id] = None
        return self._sendable(short, self._meter.message(short))

    def _sendable(self, message: Message, cost: int) -> tuple[Message, int]:
        """Rewrite a counted message if its own provider would reject it."""
        if message.native is None:
            return message, cost
        sendable, done = mended(message)
        if done:
            self.mended_ids[message.id] = done
        return sendable, cost if sendable.content is message.content else self._meter.message(sendable)
