"""What is loaded of a path: the part that windows are made of, growing with the log.

Rows are folded in the order of the log: messages, the newest prompt and bootstrap, the decisions since
the last cut. The newest cut carries those that may serve other limits, so opening a long session reads one
cut and what is kept by those that serve the limit; it reads from the root if none does. A damaged row is set
aside and reported; the entries around it are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..context.calls import is_shown_as
from ..context.head import Head
from ..context.view import in_force
from ..entry import Cut, Decision, Entry, ModelChange
from ..ids import MessageId
from ..log.fold import Fold
from ..log.path import (
    CUTS,
    HEADS,
    between,
    cut_in_force,
    entries_of,
    messages_of,
    path_to,
    read_entry,
    rows_backwards,
)
from ..message import Message
from ..stores.port import Reads
from ..stores.values import Address, Position, Row, SessionRow, Span
from ..toolspec import ToolSpec

__all__ = ["Loaded", "Serving", "leading", "load", "refreshed"]


class Loaded:
    """Messages and decisions of a path, from some entry on to its head."""

    def __init__(self, path: Sequence[Span], *, first: int) -> None:
        self.path = list(path)
        self.first = first
        self.head = Position(path[0].branch if path else 0, first - 1)
        self.at_head = ""  # id of the entry there, as far as it is known
        self.active = 0  # when the session was last active, as of then
        self.messages = list[Message]()
        self.decisions = list[Decision]()
        self.fold = Fold(self.messages, self.decisions, whole=self.whole)
        self.places = dict[str, int]()
        self._held = set[str]()  # cuts that everything is loaded for
        self.damaged = list[Row]()
        self.counts = list[tuple[int, int]]()  # stored tokens and bytes of each message
        self.counted_from = 0  # before this message, counts are in another counter than the one in force
        self.bytes = 0

    @property
    def whole(self) -> bool:
        """Whether it begins at the root."""
        return self.first <= 1

    @property
    def cut(self) -> Cut | None:
        """The newest cut that holds."""
        return self.fold.cut

    def holds(self, cut: Cut) -> bool:
        """Return True if everything is loaded that a cut keeps."""
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
        """Return the place of the first message that a cut kept; 0 if it is the first that is loaded."""
        return self.fold.first_kept(cut)

    def summary_of(self, cut: Cut | None) -> str:
        """Return the text in place of what a cut covers."""
        return self.fold.summary_of(cut)

    def add(self, row: Row, entry: Entry | None) -> None:
        """Fold the next row in, given its entry; none where it is damaged."""
        self.head, self.at_head = Position(row.branch, row.seq), row.id
        self.recall(row, entry)

    def extend(self, rows: Sequence[Row], entries: Sequence[Entry | None]) -> None:
        """Fold the next rows in, as adding one after the other would; most are messages."""
        for row, entry in zip(rows, entries, strict=True):
            if type(entry) is Message:
                self.fold.add(entry)
                self._take(entry, row.tokens, len(row.body))
            else:
                self.recall(row, entry)
        if rows:
            self.head, self.at_head = Position(rows[-1].branch, rows[-1].seq), rows[-1].id

    def recall(self, row: Row, entry: Entry | None) -> None:
        """Fold in a row from before the part that is loaded."""
        if entry is None:
            self.damaged.append(row)
        else:
            self._fold(entry, row.tokens, len(row.body))

    def start(self) -> None:
        """Begin with the part that is loaded; under a model, what was recalled may be counted otherwise."""
        self.fold.recalled = len(self.messages)
        self.counted_from = len(self.counts) if self.fold.model else 0

    def grow(self, entries: Sequence[tuple[Entry, int, int]], head: Position, at_head: str = "") -> None:
        """Fold entries in that were just written, each with its tokens and bytes."""
        self.head, self.at_head = head, at_head
        for entry, tokens, size in entries:
            self._fold(entry, tokens, size)

    def tokens_of(self, id: str) -> int | None:
        """Return the stored token count of a message; None if it is in another counter than the current."""
        place = self.places[id]
        return self.counts[place][0] if place >= self.counted_from else None

    def message_head(self, tools: Sequence[ToolSpec], context: str | None, memory: str | None) -> Head:
        """Return the head of a window: what comes before the messages."""
        return Head(
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


# Loading: from what the cuts that serve a limit have kept, or from the root if none does.

_FEW = 4  # rows of a read that looks for leading system messages

Serving = Callable[[Sequence[Decision]], list[Cut]]
"""Returns which cuts of those in force a window may be made from; none if everything is needed."""


async def load(log: Reads, row: SessionRow, serving: Serving | None = None) -> Loaded:
    """Load a path for windows from the cuts that `serving` returns; by default from its newest cut on."""
    path = await path_to(log, row.address, row.head)
    marks = await log.newest(row.address, path, (*CUTS, *HEADS))
    mark = await cut_in_force(log, row.address, path, marks)
    pinned, first = await _start(log, row.address, path, mark, serving)
    loaded = Loaded(path, first=first)
    loaded.head = Position(row.branch, first - 1)
    early = [marks[kind] for kind in HEADS if kind in marks and marks[kind].seq < first]
    system = await leading(log, row.address, path, first)
    before = [*early, *system, *pinned]
    for one, entry in zip(before, await entries_of(before), strict=True):
        loaded.recall(one, entry)
    loaded.start()
    for span in reversed(between(path, first, row.seq)):
        rows = await log.read(row.address, span)
        loaded.extend(rows, await entries_of(rows))
    loaded.head, loaded.active = row.head, row.active
    return loaded


async def refreshed(log: Reads, row: SessionRow, loaded: Loaded) -> bool:
    """Fold in what was written since; return False if the path has to be loaded again."""
    if row.branch != loaded.head.branch or row.seq < loaded.head.seq:
        return False
    if row.seq > loaded.head.seq or row.active != loaded.active:
        head, id = loaded.head, loaded.at_head  # it is read again: a store may have lost it and gone on
        rows = await log.read(row.address, Span(row.branch, head.seq, row.seq))
        if rows and rows[0].seq == head.seq and id not in ("", rows[0].id) and not rows[0].damaged:
            return False
        if any(one.kind == "revert" for one in rows):
            return False  # the cut that holds again may be before the part that is loaded
        for one, entry in zip(rows, await entries_of(rows), strict=True):
            if one.seq > loaded.head.seq:  # this handle may have written some of them meanwhile
                loaded.add(one, entry)
        loaded.active = row.active
    return True


async def leading(log: Reads, at: Address, path: Sequence[Span], end: int) -> list[Row]:
    """Return the system messages that a conversation begins with, if they are before the part to load."""
    found = list[Row]()
    for span in reversed(between(path, 1, end - 1)):
        place = span.first
        while rows := await log.read(at, Span(span.branch, place, span.last), limit=_FEW):
            for row in rows:
                for message in await messages_of([row]):
                    if message.role != "system":
                        return found
                    found.append(row)
            place = rows[-1].seq + 1
    return found


async def _start(
    log: Reads, at: Address, path: Sequence[Span], mark: Row | None, serving: Serving | None
) -> tuple[list[Row], int]:
    """Return the messages that usable cuts pinned, and where to begin to read: without a cut, at the root."""
    newest = await read_entry(mark) if mark else None
    if mark is None or not isinstance(newest, Cut):
        return [], 1
    cuts = serving(in_force([newest])) if serving else [newest]
    named = [id for cut in cuts for id in (cut.kept_from, *cut.pinned, cut.covers[1]) if id]
    found = {row.id: row for row in await log.find(at, list(dict.fromkeys(named)))} if named else {}
    starts, pinned = list[int](), dict[MessageId, Row]()
    for cut in cuts:
        rows = {id: row for id in cut.pinned if (row := found.get(id)) and await messages_of([row])}
        start = await _first_kept(log, at, between(path, 1, mark.seq), cut, found)
        if start is None and cut is newest and cut.kept_from is None:
            start = mark.seq  # it keeps what comes after itself
        if start is None or len(rows) < len(cut.pinned):
            return [], 1
        starts.append(start)
        pinned |= rows
    first = min(starts, default=1)
    early = (row for row in pinned.values() if row.seq < first)
    return sorted(early, key=lambda row: row.seq), first


async def _first_kept(
    log: Reads, at: Address, path: Sequence[Span], cut: Cut, found: Mapping[str, Row]
) -> int | None:
    """Return the number of the first entry that a cut kept; None if it is not to be found."""
    if cut.kept_from is None:
        last = found.get(cut.covers[1]) if cut.asked.get("operation") != "clear" else None
        return last.seq + 1 if last else None
    row = found.get(cut.kept_from)
    if row is None or not await messages_of([row]):
        row = await _late_results(log, at, path, cut)
    return row.seq if row else None


async def _late_results(log: Reads, at: Address, path: Sequence[Span], cut: Cut) -> Row | None:
    """Return the late results that a cut kept first: they are shown as a note, which has an id of its own."""
    async for row in rows_backwards(log, at, path):
        for message in await messages_of([row]):
            if cut.kept_from and is_shown_as(message, cut.kept_from):
                return row
    return None
