"""The tally: a conversation as it would be sent, divided into turns and groups, reduced and counted.

A turn is a user message and everything that answers it. A group is kept or removed as a whole: one message,
or calls with all their answers. ``items`` are the messages as they would be sent, without the round in
progress; a cut between two groups is safe. Whatever list comes in becomes one that every provider takes
(`turns`): duplicate ids are made unique, and all repairs are listed. ``sources`` maps a part of a tool
message to the message it comes from. ``summaries`` are the summaries found among the messages: they are not
sent at their own position.

The cost of adding a message depends only on the message, and any total is a subtraction. A tally that grew
message by message equals one that was built in one go, so the incremental window and the pure one are the
same code over the same value. Counting is lazy and starts at the newest message: what no window reaches is
never counted. If a store holds the whole outputs (``stored``), the frames of reduced outputs show their ids.

The outputs of a group share ``limits.batch``. While calls are open, a finished output gets at most an
equal share. Once all calls are answered, what the short outputs do not use goes to the long ones,
whatever the order of arrival.

A tally keeps its own copies of messages that contain a dict or a list, unless they come from a store,
where no one else refers to them, or it serves a single window of a list (``shared``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from msgspec import structs

from ..entry import Answer
from ..formats import continues, mended, refers, unfolded
from ..ids import CallId, MessageId, derived
from ..message import Message
from ..tokens import Counter
from ..tokens.cost import MESSAGE_FRAME, RESULT_FRAME, Meter
from .evidence import Evidence
from .policy import OutputLimits
from .reduction import Handle, masked, output_id, output_tokens, reduced, share, shortened
from .turns import Repair, Round, in_call_order, note

# The ledger: running totals that grow at both ends.


class Ledger:
    """Costs by index, counted lazily from an anchor outward; `first` is the first index that is counted."""

    def __init__(self, anchor: int, cost: Callable[[int], int]) -> None:
        self.first = self._anchor = anchor
        self._cost = cost
        self._back = [0]
        self._forth = [0]

    def between(self, start: int, end: int) -> int:
        """Return the sum of the costs from `start` up to but not including `end`."""
        before = self._total(start)
        return self._total(end) - before

    def exceeds(self, start: int, end: int, room: int) -> bool:
        """Return True if a range costs more than the room, counting back no further than needed."""
        total = self._total(end)
        left = room - (total - self._total(max(start, self.first)))
        while left >= 0 and self.first > start:
            left -= self._count_back()
        return left < 0

    def _total(self, index: int) -> int:
        """Return the running total at an index, relative to the anchor; count up to there if necessary."""
        if index < self._anchor:
            while self.first > index:
                self._count_back()
            return -self._back[self._anchor - index]
        for later in range(self._anchor + len(self._forth) - 1, index):
            self._forth.append(self._forth[-1] + self._cost(later))
        return self._forth[index - self._anchor]

    def _count_back(self) -> int:
        cost = self._cost(self.first - 1)
        self._back.append(self._back[-1] + cost)
        self.first -= 1  # not before: the cost of a message depends on whether it is counted
        return cost


# The places of messages by id.


class Places:
    """The indices of messages by id, in a list that may grow; read lazily from an anchor outward."""

    def __init__(self, items: Sequence[Message], anchor: int) -> None:
        self._items = items
        self._known: dict[str, int] = {}
        self._read = range(anchor, anchor)

    def of(self, id: str) -> int | None:
        """Return the place of the message with this id."""
        for later in range(self._read.stop, len(self._items)):
            self._known[self._items[later].id] = later
        first = self._read.start
        while first > 0 and id not in self._known:
            first -= 1
            self._known.setdefault(self._items[first].id, first)
        self._read = range(first, len(self._items))
        return self._known.get(id)


MOST_EVIDENCE = 4
"""The number of start places with cached evidence: of two cuts, and of the turns that they fall into.

Planning 10,000 messages again takes 1 ms with it instead of 10 (`python -m bench windows`).
"""

Shown = tuple[Message, int]  # a message as it is sent, and its tokens


class Tally:
    """A conversation as it would be sent, with its totals.

    It exists because a window must not cost more in a long conversation: everything that a message needs
    once (its place, its repair, its reduction, its tokens) is done once and kept here.
    """

    def __init__(
        self, counter: Counter, limits: OutputLimits, *, stored: bool = False, shared: bool = False
    ) -> None:
        self.counter, self.limits, self.stored = counter, limits, stored
        self._copies = not (stored or shared)
        self._unscaled = min(limits.soft, limits.batch) // 2  # tokens that no neighboring scale reduces

        self.length = 0  # of the messages as they came, including what is not sent
        self.leading: list[Message] = []  # the system messages before all others
        self.summaries: list[Message] = []
        self.items: list[Message] = []
        self.groups: list[int] = []
        self.turns: list[int] = []
        self.repairs: list[Repair] = []
        self.answers: list[tuple[int, Answer]] = []
        self.sources: dict[str, tuple[Message, int | None]] = {}
        self.unfolded: set[str] = set()  # the ids of messages that the log holds within others
        self._round = Round(self.sources)
        self._ids: set[str] = set()
        self._calls: set[CallId] = set()
        self._renamed: dict[CallId, CallId] = {}
        self._assistants: list[int] = []  # their places, up to `_read`
        self._read = 0
        self._places = Places(self.items, 0)

        # A count moves from one of these to the next: known before the message is added, of a round that may
        # still change, of a finished group, and at last of a message that never changes again (the ledger).
        self._foreseen: dict[str, Shown] = {}
        self._alone: dict[str, tuple[Message, Message, int]] = {}  # whole, reduced, tokens
        self._settled: dict[str, Shown] = {}
        self._ledger = Ledger(0, self._finished)
        self._tail: tuple[int, list[Shown]] = (0, [])  # the round in progress, and the length it was made at

        self.whole: dict[str, Message] = {}  # the reduced messages as they are in the log, by id
        self.mended_ids: dict[str, str] = {}
        self._scaled_at = -1  # the last place of an output that another scale would show differently
        self._short: dict[str, dict[int, tuple[Message, Message, int]]] = {}  # by id and tokens per output
        self._masks: dict[int, Shown] = {}
        self._evidence: dict[int, Evidence] = {}  # by the place where it begins
        self._meter = Meter(counter)

    @classmethod
    def of(
        cls,
        messages: Iterable[Message],
        counter: Counter,
        limits: OutputLimits,
        *,
        stored: bool = False,
        shared: bool = False,
        counts: Iterable[tuple[Message, int]] = (),
    ) -> Tally:
        """Build the tally of a whole conversation without counting it; known counts may be passed."""
        tally = cls(counter, limits, stored=stored, shared=shared)
        tally._foreseen = {known[0].id: known for known in counts}
        tally.extend(messages)
        tally._ledger = Ledger(len(tally.items), tally._finished)
        tally._places = Places(tally.items, len(tally.items))
        return tally

    # Adding messages.

    def extend(self, messages: Iterable[Message]) -> None:
        """Add many messages, with the same result as adding them one by one.

        Runs of messages that need no repair are taken in one loop: 10,000 take 2 ms instead of 16, which are
        most of what the first window of an opened session takes.
        """
        rest = map(Message.owned, messages) if self._copies else iter(messages)
        while (doubtful := self._add_sound(rest)) is not None:
            self.add(doubtful)

    def add(self, message: Message, tokens: int | None = None) -> None:
        """Add the next message; pass its tokens if they are known and it needs no reduction."""
        message = message.owned() if self._copies else message
        if tokens is not None:
            self._foreseen[message.id] = (message, tokens)
        self.length += 1
        if message.native is None:
            self._add(message)
            return
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
            message = structs.replace(message, id=MessageId(derived("again", message.id, str(self.length))))
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

    def _add_sound(self, messages: Iterator[Message]) -> Message | None:
        """Add messages while nothing needs repair; return the first one that may need it."""
        if self._round.assistants:
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
        if not self.items and not self._round.assistants:
            self.leading.append(message)
        elif self._round.open_calls:
            self._round.notice(message)
        else:
            self._close()
            self._append([message])

    def _add_assistant(self, message: Message) -> None:
        if self._round.answered or not self._round.open_calls:
            self._close()
        message = self._with_own_calls(message)
        if message.tool_calls or self._round.assistants or refers(message):
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
                calls[number] = structs.replace(call, id=new, provider_id=None)
            self._calls.add(calls[number].id)
        return message.replace(tool_calls=tuple(calls))

    def _add_tool(self, message: Message) -> None:
        if any(result.tool_call_id in self._renamed for result in message.tool_results):
            results = (
                structs.replace(one, tool_call_id=self._renamed.get(one.tool_call_id, one.tool_call_id))
                for one in message.tool_results
            )
            message = message.with_results(list(enumerate(results)))
        if self._round.assistants:
            complete, known = not self._round.open_calls, len(self._round.notes)
            self.repairs.extend(self._round.answer(message, hosted=message.id in self.unfolded))
            late = self._round.notes[known:] if complete else []
            if late:  # a group of its own: what it is about may have been cut by now
                del self._round.notes[known:]
                self._close()
                self._append(late)
            return
        if self.is_continued or (not self.leading and not self.items and continues(message)):
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
        """Finish the round in progress; its calls without an answer are abandoned."""
        if not self._round.assistants:
            return
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

    # Places.

    @property
    def is_continued(self) -> bool:
        """True if the provider keeps what came before the first message."""
        first = self.leading or self.items
        return bool(first) and continues(first[0])

    def sent(self) -> list[Message]:
        """Return all messages as they would be sent now, including the round in progress."""
        return [*self.leading, *self.items, *self._round.items()]

    @property
    def tail(self) -> list[Message]:
        """The round in progress, as it would be sent now."""
        return [message for message, _ in self._tail_shown()]

    @property
    def end(self) -> int:
        """The number of messages that would be sent if nothing were cut."""
        return len(self.items) + len(self._tail_shown())

    def place(self, id: str) -> int | None:
        """Return the place of a message in the view."""
        finished = self._places.of(id)
        if finished is not None:
            return finished
        return next((len(self.items) + i for i, message in enumerate(self.tail) if message.id == id), None)

    def at(self, index: int) -> Message:
        """Return one message of the view."""
        if index >= len(self.items):
            return self._tail_shown()[index - len(self.items)][0]
        return self.items[index] if index >= self._ledger.first else self._measured(index)[0]

    def group_starts(self) -> Iterator[int]:
        """Yield the starts of groups, newest first: the places where a cut is safe."""
        if self._round.assistants:
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
        """Return the places of the tool messages in the group that contains a place."""
        if place >= len(self.items):
            return [at for at, one in enumerate(self.tail, start=len(self.items)) if one.role == "tool"]
        group = bisect_right(self.groups, place)
        start = self.groups[group - 1]
        end = self.groups[group] if group < len(self.groups) else len(self.items)
        return [index for index in range(start, end) if self.items[index].role == "tool"]

    # Totals.

    def total(self, start: int) -> int:
        """Return the tokens of everything from a place to the end."""
        end = len(self.items)
        tail = sum([cost for _, cost in self._tail_shown()[max(0, start - end) :]])
        return self._ledger.between(min(start, end), end) + tail

    def between(self, start: int, end: int) -> int:
        """Return the tokens of the finished messages between two places."""
        return self._ledger.between(start, end)

    def cost(self, index: int) -> int:
        """Return the tokens of one message of the view."""
        if index >= len(self.items):
            return self._tail_shown()[index - len(self.items)][1]
        if index < self._ledger.first:
            return self._measured(index)[1]  # alone, without counting what lies between
        return self._ledger.between(index, index + 1)

    def exceeds(self, start: int, room: int) -> bool:
        """Return True if the messages from a place on exceed the room, counting no more than needed."""
        end = len(self.items)
        tail = sum([cost for _, cost in self._tail_shown()[max(0, start - end) :]])
        return self._ledger.exceeds(min(start, end), end, room - tail)

    def reach(self, room: int) -> int:
        """Return the start of the earliest group from which everything fits into the room."""
        self.exceeds(0, room)
        first = bisect_left(self.groups, self._ledger.first)
        fitting = bisect_left(self.groups, True, lo=first, key=lambda start: self.total(start) <= room)
        return self.groups[fitting] if fitting < len(self.groups) else len(self.items)

    def least(self, start: int) -> int:
        """Return the tokens from a place to the end, with the round in progress in bare frames."""
        places = self.outputs(len(self.items))
        return self.total(start) - sum(self.cost(one) - self.shortened(one, 1)[1] for one in places)

    # What is shown.

    def view(
        self, start: int, hidden: Iterable[int] = (), short: Mapping[int, int] | None = None
    ) -> list[Message]:
        """Return the messages from a place to the end, with some outputs hidden or shortened."""
        self.total(start)
        view = self.items[start:]
        view += [message for message, _ in self._tail_shown()[max(0, start - len(self.items)) :]]
        for index, each in (short or {}).items():
            if index >= start:
                view[index - start] = self.shortened(index, each)[0]
        for index in hidden:
            if index >= start:
                view[index - start] = (self._masks.get(index) or self.hidden(index))[0]
        return view

    def saved(self, index: int) -> int:
        """Return the tokens that hiding the output of a tool message saves."""
        return self.cost(index) - self.hidden(index)[1]

    def hidden(self, index: int) -> Shown:
        """Return a tool message with its output hidden, and its tokens."""
        if index not in self._masks:
            whole = self.at(index)
            message = masked(whole, self._handle(whole))
            self._masks[index] = (message, self._meter.message(message))
        return self._masks[index]

    def shortened(self, index: int, each: int) -> Shown:
        """Return a tool message with at most `each` tokens of text per output, and its tokens."""
        cost, shown = self.cost(index), self.at(index)
        return self._shortened(self.whole.get(shown.id, shown), shown, cost, each)

    def share(self, start: int, room: int) -> int | None:
        """Return the tokens that each output of the last group may have for the group to fit the room.

        Return None if it cannot fit, or if the group that starts at this place is not the round in progress.
        """
        places = self.outputs(start) if start == len(self.items) else []
        if not places:
            return None
        least = [self.shortened(index, 1)[0] for index in places]
        sizes, floors = self._sizes([self.at(index) for index in places]), self._sizes(least)
        return share(sizes, floors, room - self.total(start) + sum(sizes))

    def evidence(self, start: int, end: int) -> Evidence:
        """Return the evidence in finished messages, as they are in the log, without reading any twice.

        So planning a window again, or after the conversation grew, costs only what is new in it.
        """
        known = self._evidence.pop(start, None)
        if known is None or known.messages > end - start:
            known = Evidence()
        self._evidence[start] = known
        if len(self._evidence) > MOST_EVIDENCE:
            del self._evidence[next(iter(self._evidence))]
        new = self.items[start + known.messages : end]
        return known.read([self.whole.get(one.id, one) for one in new] if self.whole else new)

    def depends_on_scale(self, start: int) -> bool:
        """Return True if anything from `start` on would be shown differently under half or twice the scale.

        Reliable only for places that are counted; it may be True for outputs that only come close to a limit.
        """
        if self._scaled_at >= start:
            return True
        tools = [shown for shown in self._tail_shown() if shown[0].role == "tool"]
        return self._is_scaled(tools) if tools else False

    def _is_scaled(self, shown: Sequence[Shown]) -> bool:
        """Return True if one of the outputs of a group is reduced, or nearly long enough to be."""
        if self.whole and any(message.id in self.whole for message, _ in shown):
            return True
        longest, count = max([cost for _, cost in shown]), sum([len(one.tool_results) for one, _ in shown])
        return longest > self.limits.soft // 2 or longest * count > self.limits.batch // 2

    # Reducing and counting.

    def _tail_shown(self) -> list[Shown]:
        """Return the round in progress with its tokens; a new message may change all of it."""
        if not self._round.assistants:
            return []
        made_at, tail = self._tail
        if made_at != self.length:
            tail = self._shared(self._round.items(), is_open=bool(self._round.open_calls))
            self._tail = (self.length, tail)
        return tail

    def _finished(self, index: int) -> int:
        """Reduce and count a message of the view permanently: from now on, `items` has it as it is sent."""
        whole = self.items[index]
        foreseen = self._foreseen.get(whole.id)
        if foreseen is not None and foreseen[0] is whole and self._is_final(index, foreseen[1]):
            del self._foreseen[whole.id]
            return foreseen[1]
        self.items[index], cost = self._measured(index)
        id = self.items[index].id
        is_note = whole.role == "user" and id in self.sources  # of a late result, which is reduced as well
        if is_note and (self.items[index] is not whole or cost > self.limits.soft // 2):
            self._scaled_at = max(self._scaled_at, index)
        for known in (self._alone, self._settled, self._short):
            known.pop(id, None)
        return cost

    def _is_final(self, index: int, cost: int) -> bool:
        """Return True if a message is sent unchanged, under any scale and whatever its group contains.

        So an opened session takes the stored count of nearly all messages without looking at their texts.
        """
        message, items = self.items[index], self.items
        if message.native is not None or message.role != "tool":
            return message.native is None and message.id not in self.sources
        if cost * len(message.tool_results) > self._unscaled or message.id in self.whole:
            return False
        after = items[index + 1] if index + 1 < len(items) else None
        return items[index - 1].role != "tool" and (after is None or after.role != "tool")

    def _measured(self, index: int) -> Shown:
        """Reduce and count a message of the view that is not in the ledger yet."""
        message = self.items[index]
        if message.role != "tool":
            return self._reduced(message)
        if message.id not in self._settled:
            group = [self.items[place] for place in self.outputs(index)]
            shared = self._foreseen_group(group) or self._shared(group, is_open=False)
            for one, shown in zip(group, shared, strict=True):
                self._settled[one.id] = shown
            if self._is_scaled(shared):
                self._scaled_at = max(self._scaled_at, index)
        return self._settled[message.id]

    def _foreseen_group(self, group: Sequence[Message]) -> list[Shown] | None:
        """Return the outputs of a group unchanged if their counts are known and there is room for all."""
        shown = [known for message in group if (known := self._foreseen.get(message.id))]
        are_known = [one for one, _ in shown if one.native is None] == list(group)
        if not are_known or sum([cost for _, cost in shown]) > self.limits.batch:
            return None
        for message in group:
            del self._foreseen[message.id]
            self.whole.pop(message.id, None)
        return shown

    def _shared(self, group: Sequence[Message], *, is_open: bool) -> list[Shown]:
        """Reduce and count the messages of a group, and let their outputs share the limit of a batch."""
        shown = [self._reduced(message) for message in group]
        tools = [place for place, message in enumerate(group) if message.role == "tool"]
        each = self._share([shown[place] for place in tools], is_open=is_open)
        for place in tools:
            if each is not None:
                shown[place] = self._shortened(group[place], *shown[place], each)
            whole, short = group[place], shown[place][0]
            if short.tool_results == whole.tool_results:
                self.whole.pop(whole.id, None)
            else:
                self.whole[whole.id] = whole
        return shown

    def _share(self, tools: Sequence[Shown], *, is_open: bool) -> int | None:
        """Return the tokens that each output may have; None if the limits of single outputs suffice."""
        count = sum(len(message.tool_results) for message, _ in tools)
        if is_open:
            return max(1, self.limits.batch // count - MESSAGE_FRAME - RESULT_FRAME)
        room = self.limits.batch - sum(cost for _, cost in tools)
        if room >= 0:
            return None
        sizes = self._sizes([message for message, _ in tools])
        return share(sizes, [0] * len(sizes), room + sum(sizes)) or 1

    def _sizes(self, messages: Iterable[Message]) -> list[int]:
        return list(chain.from_iterable(output_tokens(message, self.counter) for message in messages))

    def _reduced(self, message: Message) -> Shown:
        """Reduce and count one message by the limits of a single output."""
        known = self._alone.get(message.id)
        if known is None or known[0] is not message:
            foreseen = self._foreseen.pop(message.id, None)
            if foreseen is not None and foreseen[0] is message:
                short, cost = foreseen
            else:
                short = self._short_note(message) if message.role == "user" else self._short_output(message)
                cost = self._meter.message(short)
            known = self._alone[message.id] = (message, *self._sendable(short, cost))
        return known[1:]

    def _short_output(self, message: Message) -> Message:
        return reduced(message, self.counter, self.limits, handle=self._handle(message))

    def _short_note(self, message: Message) -> Message:
        """Reduce the result in a note; all results of its tool message share the limit of a batch."""
        answer, number = self.sources.get(message.id, (None, None))
        if answer is None or number is None:
            return message
        short = self._short_output(answer)
        if (count := len(answer.tool_results)) > 1:
            each = max(1, self.limits.batch // count)
            short = shortened(answer, short, each, self.counter, self.limits, handle=self._handle(answer))
        return note(answer, short.tool_results[number], number) if short is not answer else message

    def _shortened(self, whole: Message, shown: Message, cost: int, each: int) -> Shown:
        known = self._short.setdefault(whole.id, {})
        if each not in known or known[each][0] is not whole:
            short = shortened(whole, shown, each, self.counter, self.limits, handle=self._handle(whole))
            if short is not shown:
                short, cost = self._sendable(short, self._meter.message(short))
            known[each] = (whole, short, cost)
        return known[each][1:]

    def _sendable(self, message: Message, cost: int) -> Shown:
        """Rewrite a counted message if its own provider would reject it."""
        if message.native is None:
            return message, cost
        sendable, done = mended(message)
        if done:
            self.mended_ids[message.id] = done
        return sendable, cost if sendable.content is message.content else self._meter.message(sendable)

    def _handle(self, message: Message) -> Handle | None:
        whole, _ = self.sources.get(message.id, (message, None))  # the store holds it under that message's id
        return partial(output_id, whole) if self.stored and message.id not in self.unfolded else None
