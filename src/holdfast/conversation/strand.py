"""A strand: the entries of one path, folded into what a conversation shows.

The fold goes entry by entry, the same while a conversation grows and when it is loaded again. A
tangent is a strand that goes on from another, its parent, and has a name and the time when it started;
nothing is copied, and the parent stays as it is. A strand that ``restores`` an earlier moment of another
holds the entries up to there, and takes the other's place.

``first`` is the number of its first entry in the log: a strand that was loaded may begin in the middle
of a conversation, and ``recalled`` is what stands before it and still counts. ``written`` counts the
entries that the log holds already, ``branch`` is the one that they are written on, and ``path`` leads
there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile, islice, takewhile

from msgspec import Struct

from ..decision import Answer, Cut, Decision, Mask, Revert, Summary, effective
from ..entry import (
    Bootstrap,
    Checkpoint,
    Entry,
    Note,
    Prompt,
    Restore,
    Settings,
    Tangent,
    Usage,
)
from ..ids import MessageId
from ..message import Message, ToolCallRequest
from ..stores.values import Position, Span
from .history import HistoryEntry, UserMessage
from .line import Line
from .transcript import line_of

__all__ = ["MAX_CONVERSATION_STATE_HISTORY_LEN", "Recalled", "Strand"]

MAX_CONVERSATION_STATE_HISTORY_LEN = 10_000
"""Exchanges that the live history holds; older ones are in the log."""

Recalled = Prompt | Bootstrap | Settings | Checkpoint | Cut | Summary


class _Clearing(Struct, frozen=True):
    """What a clearing took out of sight: a part of the history, what was to be sent, and the last calls."""

    shown_from: int
    until: int
    pending: tuple[Message, ...]
    batch: tuple[ToolCallRequest, ...]


class Strand:
    """A path, folded."""

    def __init__(self, *, first: int = 1, parent: Strand | None = None, name: str = "") -> None:
        self.first, self.parent, self.name, self.started = first, parent, name, 0
        self.branch: int | None = None
        self.path = list[Span]()
        self.written = 0
        self.recalled: list[Recalled] = parent.recalled if parent else []
        self.entries = Line(parent.entries if parent else None)
        self.messages = Line(parent.messages if parent else None)
        self.history = Line(parent.history if parent else None)
        self.lines = Line(parent.lines if parent else None)
        self.decisions = Line(parent.decisions if parent else None)
        self.checkpoints = Line(parent.checkpoints if parent else None)
        self.restores: Strand | None = None
        self.shared = 0
        self.pending: tuple[Message, ...] = parent.pending if parent else ()
        self.batch: tuple[ToolCallRequest, ...] = parent.batch if parent else ()
        self.settings: Settings | None = parent.settings if parent else None
        self.prompt: str | None = parent.prompt if parent else None
        self.bootstrap: str | None = parent.bootstrap if parent else None
        self._clearings: dict[str, _Clearing] = dict(parent._clearings) if parent else {}
        self._shown_from: int = parent._shown_from if parent else 0

    entries: Line[Entry]
    messages: Line[Message]
    history: Line[HistoryEntry]
    lines: Line[str]
    decisions: Line[Decision]
    checkpoints: Line[tuple[int, Checkpoint]]

    def fork(self, *, name: str, at: int | None = None) -> Strand:
        """Go on from here, or from behind an earlier entry, on a strand of its own."""
        base = self if at is None or at == len(self.entries) else self._prefix(at)
        branch = Strand(first=self.first, parent=base, name=name)
        branch.parent = self
        return branch

    def restored(self, at: int) -> Strand:
        """Go back to a moment: a strand with the entries up to there, in the tangent that it was in then."""
        level = self
        while level.parent is not None and at <= level.forked_at:
            level = level.parent
        if level.parent is not None and (begun := level.forked_at):
            back = level.parent.fork(name=level.name, at=begun)
            back.extend(level.entries[begun:at])
        else:
            back = level._prefix(at)
            back.parent, back.name = level.parent, level.name
        back.restores, back.shared = self, at
        return back

    def _prefix(self, at: int) -> Strand:
        base = Strand(first=self.first)
        for entry in self.recalled:
            base.recall(entry)
        base.extend(self.entries[:at])
        return base

    @property
    def forked_at(self) -> int:
        """How many entries there were when it forked."""
        return len(self.entries) - len(self.entries.own)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Fold entries in, one after the other."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Fold the next entry in."""
        self.entries.append(entry)
        match entry:
            case Message():
                self._add_message(entry)
            case Usage() if self.history:
                last = self.history[-1]
                self.history.replace_last(HistoryEntry(last.user, last.assistant, entry))
            case Note(text=text, lines=lines):
                self._add_note(text, lines)
            case Prompt() | Bootstrap() | Settings():
                self._take(entry)
            case Cut() | Mask() | Summary() | Answer() | Revert():
                self._decide(entry)
            case Tangent(started=started) if started:
                self.started = started
            case Checkpoint():
                self.checkpoints.append((len(self.entries), entry))
            case Usage() | Tangent() | Restore():
                pass

    @property
    def live_from(self) -> int:
        """The number of the first exchange of the live history: at the edge of a turn, if there is one."""
        start = max(self._shown_from, len(self.history) - MAX_CONVERSATION_STATE_HISTORY_LEN)
        if start == self._shown_from:
            return start
        edges = (place for place in range(start, len(self.history)) if self.history[place].user.opens_turn)
        return next(edges, start)

    @property
    def live_history(self) -> list[HistoryEntry]:
        """The exchanges that are shown: not those before a clearing, and the newest 10,000 at most."""
        return self.history[self.live_from :]

    @property
    def cut(self) -> Cut | None:
        """The newest cut that holds."""
        return next((one for one in reversed(effective(self.decisions)) if isinstance(one, Cut)), None)

    @property
    def summary(self) -> tuple[str, Cut, Summary | None] | None:
        """The text that stands for what the newest cut covers, and where it comes from."""
        holding = effective(self.decisions)
        cut = next((one for one in reversed(holding) if isinstance(one, Cut)), None)
        if cut is None:
            return None
        by_model = [one for one in holding if isinstance(one, Summary) and one.cut == cut.id]
        return (by_model[-1].text, cut, by_model[-1]) if by_model else (cut.summary, cut, None)

    @property
    def unanswered(self) -> list[ToolCallRequest]:
        """The calls of the last answer that nothing has come back for."""
        answered = {result.tool_call_id for message in self.pending for result in message.tool_results}
        return [call for call in self.batch if call.id not in answered]

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls that are under way; none once the user has spoken instead."""
        return [] if any(message.role == "user" for message in self.pending) else self.unanswered

    def kept_before(self, cut: Cut) -> MessageId:
        """Give the first message that was shown when a cut was made: what the cut before it kept first."""
        earlier = effective(takewhile(lambda one: one is not cut, self.decisions))
        before = next((one for one in reversed(earlier) if isinstance(one, Cut)), None)
        if before is not None and before.kept_from is not None:
            return before.kept_from
        gone = before.covers[1] if before else ""
        shown = dropwhile(lambda message: message.id != gone, self.messages) if gone else ()
        return next((message.id for message in islice(shown, 1, None)), self.messages[0].id)

    def place_of(self, id: str) -> int | None:
        """Give the exchange that a message stands in, looking from the newest on."""
        for place in range(len(self.history) - 1, -1, -1):
            entry = self.history[place]
            if entry.assistant.id == id or any(message.id == id for message in entry.user.messages):
                return place
        return None

    def place(self, seq: int) -> Position:
        """Give the place of an entry in the log by its number."""
        owners = (span.branch for span in self.path if span.first <= seq <= span.last)
        return Position(next(owners, self.path[-1].branch if self.path else self.branch or 1), seq)

    def wrote(self, count: int, head: Position) -> None:
        """Take note that entries were written up to a head."""
        self.written += count
        first = self.path[0].last + 1 if self.path else 1
        if count and self.path and self.path[0].branch == head.branch:
            self.path[0] = self.path[0]._replace(last=head.seq)
        elif count:
            self.path.insert(0, Span(head.branch, first, head.seq))

    def recall(self, entry: Recalled) -> None:
        """Take in what stands before the first entry, and still counts."""
        self.recalled.append(entry)
        self._take(entry)

    def _take(self, entry: Recalled) -> None:
        match entry:
            case Prompt(text=text):
                self.prompt = text
            case Bootstrap(text=text):
                self.bootstrap = text
            case Settings():
                self.settings = entry
            case Checkpoint():
                self.checkpoints.append((0, entry))
            case _:
                self.decisions.append(entry)

    def _add_message(self, message: Message) -> None:
        self.messages.append(message)
        if (line := line_of(message)) is not None:
            self.lines.append(line)
        if message.role == "assistant":
            self.history.append(HistoryEntry(UserMessage(self.pending), message))
            self.pending, self.batch = (), message.tool_calls
        elif message.role != "system":
            self.pending += (message,)

    def _add_note(self, text: str, lines: tuple[str, ...] | None) -> None:
        if lines is not None:
            self.lines = Line()
            for line in lines:
                self.lines.append(line)
        if text:
            self.lines.append(text)

    def _decide(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if isinstance(decision, Cut) and decision.asked.get("operation") == "clear":
            self._clearings[decision.id] = _Clearing(
                self._shown_from, len(self.history), self.pending, self.batch
            )
            self._shown_from, self.pending, self.batch = len(self.history), (), ()
        elif isinstance(decision, Revert) and (hidden := self._clearings.pop(decision.cut, None)):
            self._uncover(hidden)

    def _uncover(self, hidden: _Clearing) -> None:
        """Show again what a clearing hid; what waited waits again, or belongs to the first answer since."""
        self._shown_from = hidden.shown_from
        if len(self.history) == hidden.until:
            self.pending, self.batch = hidden.pending + self.pending, hidden.batch
        elif hidden.pending:
            first = self.history[hidden.until]
            user = UserMessage(hidden.pending + first.user.messages)
            self.history.replace(hidden.until, HistoryEntry(user, first.assistant, first.request_metadata))
