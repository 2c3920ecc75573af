"""The fold of a log: the entries of a path, in order, reduced to the state of a conversation.

The state is the messages, the newest prompt, bootstrap and model, and the decisions with their consequences:
the newest cut that holds, the summary in force, the open calls. Windows, views and conversations without a
session agree because all of them use this class. `Loaded` is the part of a path that windows are made of,
with the stored counts of its messages. A damaged row is set aside and reported, and the entries around it
are still used.

An answer that the core gives for a call is shown as a tool message, but it is not a result: the first real
result of that call is still accepted.
"""

from __future__ import annotations

from collections.abc import Reversible, Sequence
from itertools import takewhile
from typing import Any

from msgspec import structs

from ..context.calls import is_shown_as
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


class Fold:
    """The messages and decisions of a path, or of its last part up to the head."""

    def __init__(self, messages: list[Message] | None = None, *, whole: bool = True) -> None:
        """Fold into a list; `whole` is False if the path has earlier entries that are not folded in."""
        self._whole = whole
        self.messages = list[Message]() if messages is None else messages
        self.decisions = list[Decision]()
        self.prompt: str | None = None
        self.bootstrap: str | None = None
        self.model: ModelChange | None = None
        self.started = frozenset[CallId]()
        self.paused = False
        self.ended_early: EarlyEnd | None = None
        self.calibration: dict[str, Any] = {}
        self._messages_before = dict[str, int]()
        self._holding = list[Decision]()
        self._in_force = tuple[Decision, ...]()
        self._held = 0
        self.recalled = 0
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
        self.fold = Fold(whole=self.whole)
        self.messages, self.decisions = self.fold.messages, self.fold.decisions
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
