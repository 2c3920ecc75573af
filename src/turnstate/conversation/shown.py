"""What a conversation shows: the entries of one path, or of its newest part, folded.

To the fold of the log this adds what people see: exchanges, transcript lines, pending messages, settings,
line trackers and checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..entry import (
    START,
    Checkpoint,
    Cut,
    Entry,
    FileLines,
    Note,
    Revert,
    SettingsChange,
    Summary,
    Usage,
)
from ..log.fold import Fold
from ..log.operations import Placed, is_clear
from ..long_json import LONG
from ..message import Message, ToolCallRequest
from .history import HistoryEntry, UserMessage
from .line_tracker import FileLineTracker, track

DAMAGED = "[A damaged entry was left out here; run `turnstate verify`.]"
"""The line of the transcript that stands for a damaged entry."""


class _Clearing(Struct, frozen=True):
    """What a clearing hid: a part of the history, and the pending messages."""

    shown_from: int
    until: int
    pending: tuple[Message, ...]


class ShownConversation:
    """The folded entries of one path, or of its newest part."""

    def __init__(self, first: int = 1) -> None:
        """Begin with the entry of this number; add what applies from before it with `recall`."""
        self.first = first
        self.recalled = list[Entry]()
        self.placed = list[Placed]()
        self.fold = Fold(whole=first == 1)
        self.history = list[HistoryEntry]()
        self.lines = list[str]()
        self.pending: tuple[Message, ...] = ()
        self.settings: SettingsChange | None = None
        self.trackers = dict[str, FileLineTracker]()
        self.checkpoints = list[tuple[int, Checkpoint]]()  # with their numbers in the log
        self._standing: tuple[Cut, Summary | None] | None = None  # a cut in force from before the first entry
        self._clearings = dict[str, _Clearing]()
        self._shown_from = 0

    def recall(self, entry: Entry) -> None:
        """Fold in an entry from before the first one that still applies, such as a prompt or settings."""
        self.recalled.append(entry)
        match entry:
            case SettingsChange():
                self.settings = entry
            case Cut():
                self._standing = (entry, None)
            case Summary() if self._standing is not None:
                self._standing = (self._standing[0], entry)
            case _:
                self.fold.add(entry)

    def extend(self, placed: Iterable[Placed]) -> None:
        """Fold in the next entries."""
        for one in placed:
            self.add(one)

    def add(self, placed: Placed) -> None:
        """Fold in the next entry."""
        self.placed.append(placed)
        entry = placed.entry if placed.entry is not None else Note(DAMAGED)
        if shown := self.fold.add(entry):
            self._show(shown)
        match entry:
            case Usage() if self.history and entry.is_of_reply:
                last = self.history[-1]
                self.history[-1] = HistoryEntry(last.user, last.assistant, entry)
            case Note(text=text, lines=lines):
                self._add_note(text, lines)
            case SettingsChange():
                self.settings = entry
            case Cut() | Revert():
                self._clear_or_uncover(entry)
            case FileLines():
                track(self.trackers, entry)
            case Checkpoint():
                self.checkpoints.append((placed.seq, entry))

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
    def checkpoints_since_start(self) -> list[tuple[int, Checkpoint]]:
        """The checkpoints since the newest start, each with its number in the log."""
        found = list[tuple[int, Checkpoint]]()
        for one in reversed(self.checkpoints):
            found.append(one)
            if one[1].label == START:
                break
        return found[::-1]

    @property
    def cut(self) -> Cut | None:
        """The newest cut in force."""
        if self._standing is not None:
            return self._standing[0]
        return self.fold.cut

    @property
    def summary(self) -> tuple[str, Cut, Summary | None] | None:
        """The text that replaces what the newest cut covers, the cut, and the model's summary if any."""
        if self._standing is not None:
            cut, by_model = self._standing
            return by_model.shown if by_model else cut.summary, cut, by_model
        cut_in_force = self.fold.cut
        if cut_in_force is None:
            return None
        return self.fold.summary_of(cut_in_force), cut_in_force, self.fold.model_summary(cut_in_force)

    @property
    def latest_summary(self) -> tuple[str, Usage] | None:
        """The summary that a compaction or the cap left, and the metadata of the request for it."""
        found = self.summary
        if found is None or not found[1].asked or not found[0]:
            return None
        text, cut, by_model = found
        known: dict[str, Any] = cut.asked | (by_model.source if by_model else {})
        return text, Usage(model=str(known.pop("model", "")), details=known)

    @property
    def open_calls(self) -> list[ToolCallRequest]:
        """The calls in progress; none once the user has spoken instead."""
        return self.fold.open_calls

    def first_kept(self, cut: Cut) -> int:
        """Return the number of the first exchange that a cut kept; an exchange ends with the assistant."""
        before = self.fold.messages[: self.fold.first_kept(cut)]
        return sum(message.role == "assistant" for message in before)

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
            self.lines = list(lines)
        if text:
            self.lines.append(text)

    def _clear_or_uncover(self, decision: Cut | Revert) -> None:
        if is_clear(decision) and isinstance(decision, Cut):
            self._clearings[decision.id] = _Clearing(self._shown_from, len(self.history), self.pending)
            self._shown_from, self.pending = len(self.history), ()
        elif isinstance(decision, Revert) and (hidden := self._clearings.pop(decision.cut, None)):
            self._uncover(hidden)

    def _uncover(self, hidden: _Clearing) -> None:
        """Show what a clearing hid; its messages become pending again or join the first exchange since."""
        self._shown_from = hidden.shown_from
        if len(self.history) == hidden.until:
            self.pending = hidden.pending + self.pending
        elif hidden.pending:
            first = self.history[hidden.until]
            user = UserMessage(hidden.pending + first.user.messages)
            self.history[hidden.until] = HistoryEntry(user, first.assistant, first.request_metadata)


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
