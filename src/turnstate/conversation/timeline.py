"""Timelines: the entries of one path, folded into what a conversation shows.

To the fold of the log, a timeline adds what people see: exchanges, transcript lines, pending messages,
settings, line trackers and checkpoints. It can be forked at any earlier entry in constant time: after each
entry it records a `Moment`, which copies nothing but says how long the lists were and what was newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..context.view import floor_of
from ..entry import (
    START,
    Answer,
    Bootstrap,
    Checkpoint,
    Cut,
    Decision,
    Entry,
    FileLines,
    ModelChange,
    Note,
    Prompt,
    Revert,
    Settings,
    Summary,
    Tangent,
    Usage,
)
from ..errors import InvalidPayload
from ..log.fold import Fold, ForkedList
from ..log.undo import Undoable, UndoSearch
from ..long_json import LONG
from ..message import Message, ToolCallRequest
from .history import HistoryEntry, UserMessage
from .line_tracker import FileLineTracker, tracker_from_json


class Clearing(Struct, frozen=True):
    """What a clearing hid: a part of the history, and the pending messages."""

    shown_from: int
    until: int
    pending: tuple[Message, ...]


class Moment(Struct, frozen=True, gc=False):
    """What a timeline showed after one entry: how long its lists were, and what was newest."""

    messages: int
    history: ForkedList[HistoryEntry]
    exchanges: int
    last: HistoryEntry | None
    lines: ForkedList[str]
    shown_lines: int
    decisions: int
    checkpoints: int
    pending: tuple[Message, ...]
    settings: Settings | None
    trackers: Mapping[str, FileLineTracker]
    prompt: str | None
    bootstrap: str | None
    model: ModelChange | None
    clearings: Mapping[str, Clearing]
    shown_from: int


Recalled = Prompt | Bootstrap | ModelChange | Settings | Checkpoint | Cut | Summary | Message


class Timeline:
    """The folded entries of one path, or of its newest part."""

    def __init__(self, *, first: int = 1, parent: Timeline | None = None, name: str = "") -> None:
        self.first, self.parent, self.name, self.started = first, parent, name, 0
        self.recorded = False  # True once a log holds it
        self.recalled: list[Recalled] = parent.recalled if parent else []
        self.recalled_at: dict[str, int] = parent.recalled_at if parent else {}
        self.entries = ForkedList(parent.entries if parent else None)
        self.history = ForkedList(parent.history if parent else None)
        self.lines = ForkedList(parent.lines if parent else None)
        self.checkpoints = ForkedList(parent.checkpoints if parent else None)
        self.operation = ""
        self.former: Timeline | None = None
        self.begun = self.forked_at = self.created = self.shared = 0
        self.leavings = dict[int, Timeline]()
        self.pending: tuple[Message, ...] = parent.pending if parent else ()
        self.settings: Settings | None = parent.settings if parent else None
        self.trackers: Mapping[str, FileLineTracker] = parent.trackers if parent else {}
        self._clearings: Mapping[str, Clearing] = parent._clearings if parent else {}
        self._moments: ForkedList[Moment] = ForkedList(parent._moments if parent else None)
        self._shown_from: int = parent._shown_from if parent else 0
        # The newest requested cut, and the first exchange that it kept, which no fork changes.
        self._floor: tuple[str, int] = parent._floor if parent else ("", 0)
        self._checked: tuple[tuple[Decision, ...] | None, bool] = (None, False)  # see `lacks_a_start`
        self.messages = ForkedList(parent.messages if parent else None)
        self.decisions = ForkedList(parent.decisions if parent else None)
        self.fold = Fold(self.messages, self.decisions, parent.fold if parent else None, whole=first == 1)

    parent: Timeline | None
    """The timeline that leaving the tangent leads to; None outside a tangent."""
    begun: int
    """How many entries there were when its tangent began."""
    forked_at: int
    """How many of its entries are the parent's; 0 outside a tangent, or if it is loaded alone."""
    operation: str
    """What created it: a tangent, a restore, a rewind or a fork; empty for the first timeline."""
    former: Timeline | None
    """The timeline before that operation, to which undo leads; None if there is none, or it is not loaded."""
    created: int
    """How many entries there were when it was created; negative if it is not loaded that far back."""
    shared: int
    """How many entries it has in common with the former one."""
    entries: ForkedList[Entry]
    messages: ForkedList[Message]
    history: ForkedList[HistoryEntry]
    lines: ForkedList[str]
    decisions: ForkedList[Decision]
    fold: Fold
    checkpoints: ForkedList[tuple[int, Checkpoint]]

    def fork(self, *, name: str, at: int | None = None) -> Timeline:
        """Return a tangent that begins here, or after an earlier entry."""
        base = self if at is None or at == len(self.entries) else self._earlier(at)
        tangent = Timeline(first=self.first, parent=base, name=name)
        tangent.parent, tangent.operation, tangent.former = self, "tangent", self
        tangent.begun = tangent.forked_at = tangent.created = tangent.shared = len(tangent.entries)
        return tangent

    def restored(self, at: int, operation: str = "restore") -> Timeline:
        """Return a timeline with only the first `at` entries, in the tangent that they belong to."""
        level = self
        while level.parent is not None and at <= level.begun:
            at = max(0, at + level.first - level.parent.first)  # the parent may be loaded from another entry
            level = level.parent
        back = level._earlier(at)
        back.parent, back.name, back.started = level.parent, level.name, level.started
        back.begun, back.forked_at = level.begun, level.forked_at
        back.operation, back.former = operation, self
        back.created = back.shared = at
        return back

    def _earlier(self, at: int) -> Timeline:
        """Return the timeline as it was after `at` entries, without folding any of them again."""
        if at == 0:
            base = Timeline(first=self.first)
            for entry in self.recalled:
                base.recall(entry, at=self.recalled_at.get(getattr(entry, "id", ""), 0))
            return base
        moment, base = self._moments[at - 1], Timeline(first=self.first, parent=self)
        base.entries, base._moments = self.entries.fork(at), self._moments.fork(at)
        base.messages, base.decisions = (
            self.messages.fork(moment.messages),
            self.decisions.fork(moment.decisions),
        )
        base.fold = Fold(base.messages, base.decisions, self.fold, whole=self.first == 1)
        base.fold.prompt, base.fold.bootstrap = moment.prompt, moment.bootstrap
        base.fold.model = moment.model
        base.lines, base.checkpoints = (
            moment.lines.fork(moment.shown_lines),
            self.checkpoints.fork(moment.checkpoints),
        )
        base.history = moment.history.fork(moment.exchanges)
        if moment.last is not None and moment.last is not base.history[-1]:  # its usage was reported later
            base.history.replace_last(moment.last)
        base.pending, base._clearings = moment.pending, moment.clearings
        base.settings, base.trackers = moment.settings, moment.trackers
        base._shown_from = moment.shown_from
        return base

    def _remember(self) -> None:
        """Record what is shown now, so that a timeline can be forked here later."""
        self._moments.append(
            Moment(
                messages=len(self.messages),
                history=self.history,
                exchanges=len(self.history),
                last=self.history[-1] if self.history else None,
                lines=self.lines,
                shown_lines=len(self.lines),
                decisions=len(self.decisions),
                checkpoints=len(self.checkpoints),
                pending=self.pending,
                settings=self.settings,
                trackers=self.trackers,
                prompt=self.fold.prompt,
                bootstrap=self.fold.bootstrap,
                model=self.fold.model,
                clearings=self._clearings,
                shown_from=self._shown_from,
            )
        )

    def left(self, tangent: Timeline) -> None:
        """Record that a tangent was left, and that the conversation continues here."""
        self.leavings[len(self.entries)] = tangent
        self.add(Tangent(name=tangent.name))

    def last_left(self, name: str) -> Timeline | None:
        """Return the timeline on which the tangent `name` was last left to come back here."""
        return next((one for one in reversed(self.leavings.values()) if one.name == name), None)

    @property
    def said(self) -> list[Message]:
        """The messages since its tangent began; outside a tangent, all loaded messages."""
        shown = (one.message if isinstance(one, Answer) else one for one in self.entries[self.begun :])
        return [one for one in shown if isinstance(one, Message)]

    def newest_operation(self, search: UndoSearch) -> Undoable | None:
        """Return the newest operation since the timeline was created that was not undone."""
        own = range(len(self.entries) - 1, self.created - 1, -1)
        for place, entry in zip(own, reversed(self.entries), strict=False):
            found = search.check(self.first + place, entry)
            if found and (isinstance(entry, Cut) or place in self.leavings):
                return found
        return None

    def extend(self, entries: Iterable[Entry]) -> None:
        """Fold entries in, one after the other."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Fold the next entry in."""
        self.entries.append(entry)
        if shown := self.fold.add(entry):
            self._show(shown)
        match entry:
            case Usage() if self.history and entry.is_of_reply:
                last = self.history[-1]
                self.history.replace_last(HistoryEntry(last.user, last.assistant, entry))
            case Note(text=text, lines=lines):
                self._add_note(text, lines)
            case Settings():
                self.settings = entry
            case Cut() | Revert():
                self._clear_or_uncover(entry)
            case FileLines(path=path, record=record):
                self._track(path, record)
            case Tangent(started=started) if started:
                self.started = started
            case Checkpoint():
                self.checkpoints.append((len(self.entries), entry))
        self._remember()

    @property
    def live_from(self) -> int:
        """The number of the first exchange of the live history, which begins with a turn if possible."""
        start = max(self._shown_from, len(self.history) - MAX_CONVERSATION_STATE_HISTORY_LEN)
        if start == self._shown_from:
            return start
        edges = (place for place in range(start, len(self.history)) if self.history[place].user.opens_turn)
        return next(edges, start)

    @property
    def live_history(self) -> list[HistoryEntry]:
        """The exchanges that are shown: at most the newest 10,000, and none from before a clearing."""
        return self.history[self.live_from :]

    @property
    def is_over_cap(self) -> bool:
        """True if a window could show more exchanges than the live history may hold."""
        if len(self.history) <= MAX_CONVERSATION_STATE_HISTORY_LEN:
            return False
        floor = floor_of(self.fold.in_force)
        if floor and self._floor[0] != floor.id:
            self._floor = (floor.id, self.first_kept(floor))
        return len(self.history) - (self._floor[1] if floor else 0) > MAX_CONVERSATION_STATE_HISTORY_LEN

    @property
    def lacks_a_start(self) -> bool:
        """True if entries that are not loaded would be shown.

        A window would show them if no cut covers them or a cut pinned them; the history and the transcript
        would, if there are no more exchanges than they may hold.
        """
        if self.first == 1:
            return False
        if self._checked[0] is not self.fold.in_force:
            self._checked = (self.fold.in_force, self._shows_unloaded())
        is_short = len(self.history) <= MAX_CONVERSATION_STATE_HISTORY_LEN
        return is_short or self._checked[1]

    def after(self, entry: Entry) -> Timeline:
        """Return a timeline with one more entry, to see what it would show; this one is not changed."""
        timeline = Timeline(first=self.first, parent=self)
        timeline.add(entry)
        return timeline

    def _shows_unloaded(self) -> bool:
        decisions = self.fold.in_force
        floor = floor_of(decisions)
        if floor is None or (floor.kept_from is None and floor.id in self.recalled_at):
            return True
        ids = {id for one in decisions if isinstance(one, Cut) for id in one.pinned}
        ids |= {floor.kept_from} if floor.kept_from else set()
        return any(self.fold.place_of(id) is None for id in ids)

    @property
    def checkpoints_since_start(self) -> list[tuple[int, Checkpoint]]:
        """Checkpoints since the newest start, each with the number of entries up to it; 0 if not loaded."""
        found = list[tuple[int, Checkpoint]]()
        for one in reversed(self.checkpoints):
            found.append(one)
            if one[1].label == START:
                break
        return found[::-1]

    @property
    def cut(self) -> Cut | None:
        """The newest cut in force."""
        return self.fold.cut

    @property
    def summary(self) -> tuple[str, Cut, Summary | None] | None:
        """The text that replaces what the newest cut covers, the cut, and the model's summary if any."""
        cut = self.fold.cut
        return (self.fold.summary_of(cut), cut, self.fold.model_summary(cut)) if cut else None

    @property
    def latest_summary(self) -> tuple[str, Usage] | None:
        """The summary that a compaction or the cap left, and the metadata of the request for it."""
        found = self.summary
        if found is None or not found[1].asked or not found[0]:
            return None
        text, cut, by_model = found
        known = cut.asked | (by_model.source if by_model else {})
        return text, Usage(model=str(known.pop("model", "")), details=known)

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls in progress; none once the user has spoken instead."""
        return self.fold.open_calls

    def fresh(self, message: Message) -> Message | None:
        """Return what is new in a tool message, under the core's ids; None if nothing is new.

        Raise `InvalidMessage` for a result of an unknown call, or a second, different result.
        """
        return self.fold.known_calls([message]).fresh(message)

    def model_before(self, place: int) -> ModelChange | None:
        """Return the model that was in force when there were `place` entries."""
        if place:
            return self._moments[place - 1].model
        return next((one for one in reversed(self.recalled) if isinstance(one, ModelChange)), None)

    def first_kept(self, cut: Cut) -> int:
        """Return the number of the first exchange that a cut kept; an exchange ends with the assistant."""
        before = self.messages[: self.fold.first_kept(cut)]
        return sum(message.role == "assistant" for message in before)

    def recall(self, entry: Recalled, *, at: int = 0) -> None:
        """Fold in an entry from before the loaded part that still applies, with its number if known."""
        self.recalled.append(entry)
        self.fold.add(entry)
        match entry:
            case Message():
                self.fold.recalled = len(self.messages)
            case Settings():
                self.settings = entry
            case Checkpoint():
                self.checkpoints.append((0, entry))
            case Cut():
                self.recalled_at[entry.id] = at

    def _show(self, message: Message) -> None:
        if (line := _line_of(message)) is not None:
            self.lines.append(line)
        if message.role == "assistant":
            self.history.append(HistoryEntry(UserMessage(self.pending), message))
            self.pending = ()
        elif message.role != "system":
            self.pending += (message,)

    def _add_note(self, text: str, lines: tuple[str, ...] | None) -> None:
        if lines is not None:
            self.lines = ForkedList()
            for line in lines:
                self.lines.append(line)
        if text:
            self.lines.append(text)

    def _track(self, path: str, record: dict[str, Any] | None) -> None:
        kept = {name: one for name, one in self.trackers.items() if name != path}
        with suppress(InvalidPayload):  # an unreadable record is dropped
            kept |= {path: tracker_from_json(record)} if record is not None else {}
        self.trackers = kept

    def _clear_or_uncover(self, decision: Cut | Revert) -> None:
        if isinstance(decision, Cut) and decision.asked.get("operation") == "clear":
            hidden = Clearing(self._shown_from, len(self.history), self.pending)
            self._clearings = {**self._clearings, decision.id: hidden}
            self._shown_from, self.pending = len(self.history), ()
        elif isinstance(decision, Revert) and decision.cut in self._clearings:
            self._uncover(self._clearings[decision.cut])
            self._clearings = {id: one for id, one in self._clearings.items() if id != decision.cut}

    def _uncover(self, hidden: Clearing) -> None:
        """Show what a clearing hid; its messages become pending again or join the first exchange since."""
        self._shown_from = hidden.shown_from
        if len(self.history) == hidden.until:
            self.pending = hidden.pending + self.pending
        elif hidden.pending:
            first, *rest = self.history[hidden.until :]
            user = UserMessage(hidden.pending + first.user.messages)
            self.history = self.history.fork(hidden.until)  # a tangent that began before it is not changed
            for entry in (HistoryEntry(user, first.assistant, first.request_metadata), *rest):
                self.history.append(entry)


def _line_of(message: Message) -> str | None:
    """Return the line of a message in the transcript for people; None for a tool message."""
    match message.role:
        case "user":
            text = message.text
            pieces = (text[start : start + LONG] for start in range(0, len(text), LONG))
            return "> " + "".join(piece.replace("\n", "\n> ") for piece in pieces)
        case "assistant":
            names = ", ".join(call.name for call in message.tool_calls) or "none"
            return f"{message.text}\n[Tool uses: {names}]"
        case _:
            return None
