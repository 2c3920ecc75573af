"""The fold of a log: the entries of a path, in order, reduced to the state of a conversation.

The state is the messages, the newest prompt, bootstrap and model, and the decisions with their consequences:
the newest cut that holds, the summary in force, the open calls. A session folds the rows that it loads; the
timeline of a conversation state folds the same entries into lists that can be forked. They agree because
both use this class. `Loaded` is the part of a path that windows are made of, with the stored counts of its
messages. A damaged row is set aside and reported, and the entries around it are still used.

An answer that the core gives for a call is shown as a tool message, but it is not a result: the first real
result of that call is still accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Reversible, Sequence
from itertools import takewhile
from typing import Any, Protocol, TypeVar, overload

from msgspec import structs

from ..context.calls import KnownCalls, is_shown_as, unknown_calls
from ..context.preface import Preface
from ..context.view import in_force
from ..entry import (
    Answer,
    Bootstrap,
    Cut,
    Decision,
    EarlyEnd,
    Entry,
    ModelChange,
    Prompt,
    Revert,
    Started,
    Summary,
    Usage,
    effective,
)
from ..formats import unfolded
from ..ids import CallId, MessageId
from ..message import Message, ToolCallRequest
from ..stores.values import Position, Row, Span
from ..toolspec import ToolSpec

T = TypeVar("T")


class GrowingList(Protocol[T]):
    """A sequence that grows at its end: a list, or one that can be forked."""

    def append(self, item: T, /) -> None: ...  # noqa: D102
    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[T]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[T]: ...
    def __reversed__(self) -> Iterator[T]: ...


class ForkedList(Sequence[T]):
    """A list that can continue from a position in another list without copying it.

    Forking takes constant time. Items added after the fork are visible on one side only, so abandoning a fork
    means dropping it.
    """

    __slots__ = ("_base", "_own", "_parent")

    def __init__(self, parent: ForkedList[T] | None = None, at: int | None = None) -> None:
        self._parent = parent
        self._base = 0 if parent is None else len(parent) if at is None else at
        self._own: list[T] = []

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self._own.append(item)

    def replace_last(self, item: T) -> None:
        """Replace the last item, on this side of a fork only."""
        if self._own:
            self._own[-1] = item
        else:
            self._base -= 1
            self._own.append(item)

    def replace(self, place: int, item: T) -> None:
        """Replace an item that was added after the fork."""
        self._own[place - self._base] = item

    def fork(self, at: int | None = None) -> ForkedList[T]:
        """Return a list that continues from the end, or from an earlier position."""
        return ForkedList(self, at)

    def __len__(self) -> int:
        return self._base + len(self._own)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._between(start, stop)[::step] if step > 0 else list(self)[index]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return next(iter(self._between(place, place + 1)))

    def __iter__(self) -> Iterator[T]:
        return iter(self._between(0, len(self)))

    def __reversed__(self) -> Iterator[T]:
        line: ForkedList[T] | None = self
        end = len(self)
        while line is not None and end > 0:
            for place in range(min(len(line._own), end - line._base) - 1, -1, -1):
                yield line._own[place]
            end, line = min(end, line._base), line._parent

    def _between(self, start: int, stop: int) -> list[T]:
        pieces = list[list[T]]()
        line: ForkedList[T] | None = self
        while line is not None and stop > start:
            if stop > line._base:
                first = max(0, start - line._base)
                pieces.append(line._own[first : stop - line._base])
            stop, line = min(stop, line._base), line._parent
        return [item for piece in reversed(pieces) for item in piece]


class Fold:
    """The messages and decisions of a path, or of its last part up to the head."""

    def __init__(
        self,
        messages: GrowingList[Message] | None = None,
        decisions: GrowingList[Decision] | None = None,
        base: Fold | None = None,
        *,
        whole: bool = True,
    ) -> None:
        """Fold into these lists; with a base, they are forks of its lists and the fold continues from it.

        `whole` is False if the path has earlier entries that are not folded in.
        """
        self._whole = whole
        self.messages: GrowingList[Message] = [] if messages is None else messages
        self.decisions: GrowingList[Decision] = [] if decisions is None else decisions
        self.prompt: str | None = base.prompt if base else None
        self.bootstrap: str | None = base.bootstrap if base else None
        self.model: ModelChange | None = base.model if base else None
        self.started: frozenset[CallId] = base.started if base else frozenset()
        self.paused: bool = base.paused if base else False
        self.ended_early: EarlyEnd | None = base.ended_early if base else None
        self.calibration: dict[str, Any] = base.calibration if base else {}
        # Forks share the next two: ids are never reused, and a fork has the same messages before it.
        self._answers: set[MessageId] = base._answers if base else set()
        self._messages_before: dict[str, int] = base._messages_before if base else {}
        self._holding = list[Decision]()
        self._in_force = tuple[Decision, ...]()
        self._held = 0
        self.recalled: int = base.recalled if base else 0
        """The number of leading messages from before the folded part: prompts, questions."""

    def add(self, entry: Entry) -> Message | None:
        """Fold in the next entry; return the message that shows it, if any."""
        match entry:
            case Message():
                self.paused = False
                if entry.role == "assistant":
                    self.started, self.ended_early = frozenset(), None  # earlier calls are answered by now
                self.messages.append(entry)
                return entry
            case Usage(calibration=calibration):
                if entry.is_of_reply:
                    self.paused, self.ended_early = entry.paused, entry.ended_early
                self.calibration = calibration or self.calibration
            case Prompt(text=text):
                self.prompt = text
            case Bootstrap(text=text):
                self.bootstrap = text
            case Started(calls=calls):
                self.started |= frozenset(calls)  # each call of a batch starts when it is approved
            case ModelChange():
                self.model = entry
            case Answer():
                self.decisions.append(entry)
                if shown := entry.message:
                    self._answers.add(shown.id)
                    self.messages.append(shown)
                return shown
            case _ if isinstance(entry, Decision):
                self.decisions.append(entry)
                if isinstance(entry, Cut):
                    self._messages_before[entry.id] = len(self.messages)
        return None

    @property
    def holding(self) -> list[Decision]:
        """The decisions that hold: neither reverted nor made on top of a reverted one."""
        self._update()
        return self._holding

    @property
    def in_force(self) -> tuple[Decision, ...]:
        """The decisions that windows are made under: the newest cut, what it carries, and what follows it."""
        self._update()
        return self._in_force

    def _update(self) -> None:
        if self._held != len(self.decisions):
            self._holding, self._held = effective(self.decisions), len(self.decisions)
            self._in_force = in_force(self.decisions)

    @property
    def cut(self) -> Cut | None:
        """The newest cut that holds."""
        return next((one for one in reversed(self.holding) if isinstance(one, Cut)), None)

    def cut_before(self, cut: Cut) -> Cut | None:
        """Return the cut that held before another; the newest one if the other is not folded in yet."""
        earlier = effective(takewhile(lambda one: one is not cut, self.decisions))
        return next((one for one in reversed(earlier) if isinstance(one, Cut)), None)

    def model_summary(self, cut: Cut) -> Summary | None:
        """Return the newest summary that a model wrote for a cut, if it holds."""
        written = (one for one in reversed(self.holding) if isinstance(one, Summary))
        return next((one for one in written if one.cut == cut.id), None)

    def summary_of(self, cut: Cut | None) -> str:
        """Return the text that replaces what a cut covers: a model's summary if any, else the digest."""
        summary = self.model_summary(cut) if cut else None
        return summary.shown if summary else cut.summary if cut else ""

    def place_of(self, id: str) -> int | None:
        """Return the index of the message that a window shows under this id."""
        for matches in (lambda message: message.id == id, lambda message: is_shown_as(message, id)):
            for back, message in enumerate(reversed(self.messages), start=1):
                if matches(message):
                    return len(self.messages) - back
        return None

    def first_kept(self, cut: Cut) -> int:
        """Return the index of the first message that a cut keeps; 0 if it is before the folded part.

        A cut that kept nothing keeps what comes after the last message that it covers. A clearing, or a cut
        that covers no message of this log, keeps what comes after the cut itself.
        """
        if cut.kept_from is not None:
            return self.place_of(cut.kept_from) or 0
        is_clearing = cut.asked.get("operation") == "clear"
        last = self.place_of(cut.covers[1]) if cut.covers[1] and not is_clearing else None
        if last is not None:
            return last + 1
        return self._messages_before.get(cut.id, 0) if is_clearing or self._whole else 0

    def archiving(self, cut: Cut) -> Cut:
        """Return a cut that is about to be written, with the last message that is archived once it is."""
        if not cut.covers[1] or cut.asked.get("operation") == "clear":
            return cut
        end = max(self._archived_before(cut), self.first_kept(cut))
        return structs.replace(cut, archived_to=self.messages[end - 1].id if end else None)

    def evicted(self, cut: Cut) -> tuple[str, str] | None:
        """Return the ids of the first and last message to archive with a cut; None if all are archived."""
        first, last = self._archived_before(cut), self._place(cut.archived_to)
        if last is None or first > last:
            return None
        return self.messages[first].id, self.messages[last].id

    def _archived_before(self, cut: Cut) -> int:
        """Return the index after the last message that was archived when a cut was made.

        An undone compaction has archived what it covered; an undone clearing has not.
        """
        reverted = {one.cut for one in self.decisions if isinstance(one, Revert)}
        for one in reversed(list(takewhile(lambda one: one is not cut, self.decisions))):
            if isinstance(one, Cut) and not (one.id in reverted and one.asked.get("operation") == "clear"):
                last = self._place(one.archived_to)
                return last + 1 if last is not None else max(self.recalled, self.first_kept(one))
        return next((place for place, one in enumerate(self.messages) if one.role != "system"), 0)

    def _place(self, id: MessageId | None) -> int | None:
        """Return the index of the message with this id."""
        places = enumerate(reversed(self.messages), start=1)
        return next((len(self.messages) - back for back, one in places if one.id == id), None) if id else None

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls that await a result; none once the user has sent a message instead."""
        return open_calls(self.messages)

    def known_calls(self, messages: Sequence[Message]) -> KnownCalls:
        """Return the calls that messages refer to, with their results, looking back only as far as needed."""
        known = KnownCalls()
        for message in reversed(self.messages):
            if message.id not in self._answers:
                known.recall(message)
                if message.tool_calls and not unknown_calls(known, messages):
                    break
        return known


def open_calls(messages: Reversible[Message]) -> list[ToolCallRequest]:
    """Return the calls of the last round that await a result, in their order."""
    answered, found, asked = set[CallId](), list[ToolCallRequest](), False
    for message in reversed(messages):
        parts = unfolded(message)
        if message.role == "user" or (asked and parts[0].role == "tool"):
            break
        asked = asked or parts[0].role == "assistant"
        for one in reversed(parts):
            answered.update(result.tool_call_id for result in one.tool_results)
            found += reversed(one.tool_calls)
    return [call for call in reversed(found) if call.id not in answered]


class Loaded:
    """The messages and decisions of a path from a given entry to its head."""

    def __init__(self, path: Sequence[Span], *, first: int) -> None:
        self.path = list(path)
        self.first = first
        self.head = Position(path[0].branch if path else 0, first - 1)
        self.at_head = ""  # id of the entry at the head, if it is known
        self.active = 0  # when the session was last active, as of the load
        self.messages = list[Message]()
        self.decisions = list[Decision]()
        self.fold = Fold(self.messages, self.decisions, whole=self.whole)
        self.places = dict[str, int]()
        self._held = set[str]()  # cuts for which everything is loaded
        self.damaged = list[Row]()
        self.counts = list[tuple[int, int]]()  # stored tokens and bytes of each message
        self.counted_from = 0  # counts before this message come from another counter than the one in force
        self.bytes = 0

    @property
    def whole(self) -> bool:
        """True if it begins at the root."""
        return self.first <= 1

    @property
    def cut(self) -> Cut | None:
        """The newest cut that holds."""
        return self.fold.cut

    def holds(self, cut: Cut) -> bool:
        """Return True if everything that a cut keeps is loaded."""
        if self.whole or cut.id in self._held:
            return True
        first = self.fold.place_of(cut.kept_from or cut.covers[1])
        held = first is not None and first >= self.fold.recalled
        if cut.kept_from is None and not held:
            held = any(isinstance(one, Cut) and one.id == cut.id for one in self.decisions)
        if held and all(id in self.places for id in cut.pinned):
            self._held.add(cut.id)
            return True
        return False

    def kept_place(self, cut: Cut) -> int:
        """Return the index of the first message that a cut keeps; 0 if that is the first one loaded."""
        return self.fold.first_kept(cut)

    def summary_of(self, cut: Cut | None) -> str:
        """Return the text that replaces what a cut covers."""
        return self.fold.summary_of(cut)

    def add(self, row: Row, entry: Entry | None) -> None:
        """Fold in the next row with its entry, which is None if the row is damaged."""
        self.head, self.at_head = Position(row.branch, row.seq), row.id
        self.recall(row, entry)

    def extend(self, rows: Sequence[Row], entries: Sequence[Entry | None]) -> None:
        """Fold in the next rows, as adding them one by one would; most are messages."""
        for row, entry in zip(rows, entries, strict=True):
            if type(entry) is Message:
                self.fold.add(entry)
                self._take(entry, row.tokens, len(row.body))
            else:
                self.recall(row, entry)
        if rows:
            self.head, self.at_head = Position(rows[-1].branch, rows[-1].seq), rows[-1].id

    def recall(self, row: Row, entry: Entry | None) -> None:
        """Fold in a row from before the loaded part."""
        if entry is None:
            self.damaged.append(row)
        else:
            self._fold(entry, row.tokens, len(row.body))

    def start(self) -> None:
        """Begin the loaded part; with a model set, recalled messages may be counted differently."""
        self.fold.recalled = len(self.messages)
        self.counted_from = len(self.counts) if self.fold.model else 0

    def grow(self, entries: Sequence[tuple[Entry, int, int]], head: Position, at_head: str = "") -> None:
        """Fold in entries that were just written, each with its tokens and bytes."""
        self.head, self.at_head = head, at_head
        for entry, tokens, size in entries:
            self._fold(entry, tokens, size)

    def tokens_of(self, id: str) -> int | None:
        """Return the stored token count of a message; None if another counter made it."""
        place = self.places[id]
        return self.counts[place][0] if place >= self.counted_from else None

    def preface(self, tools: Sequence[ToolSpec], context: str | None, memory: str | None) -> Preface:
        """Return the preface of a window: what comes before the messages."""
        return Preface(
            system=self.fold.prompt,
            bootstrap=self.fold.bootstrap,
            context=context,
            memory=memory,
            tools=tuple(tools),
        )

    def _fold(self, entry: Entry, tokens: int, size: int) -> None:
        if isinstance(entry, ModelChange) and (
            not self.fold.model or self.fold.model.counter != entry.counter
        ):
            self.counted_from = len(self.counts)
        if shown := self.fold.add(entry):
            self._take(shown, tokens, size)

    def _take(self, shown: Message, tokens: int, size: int) -> None:
        self.places[shown.id] = len(self.counts)
        self.counts.append((tokens, size))
        self.bytes += size
