"""Timelines of a session: where each is in the log, and how they are loaded from it.

A conversation state sees the branches of a session as timelines: the main one and its tangents. Loading reads
back from the head until the live history is full at every moment that it shows, and then the timelines to
which tangents and undo lead.
What of a state is in the log, and where, is kept in its `Sync`: timelines and states know nothing of stores.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from msgspec import Struct

from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..context.view import in_force
from ..conversation import ConversationState
from ..conversation.timeline import Timeline
from ..entry import (
    Bootstrap,
    Checkpoint,
    Cut,
    Entry,
    ModelChange,
    Note,
    Prompt,
    Revert,
    Settings,
    Summary,
    Tangent,
)
from ..log.path import (
    between,
    cut_in_force,
    entries_of,
    entry_of,
    leading,
    messages_of,
    pages_backwards,
    read_entry,
    spans,
    tip,
)
from ..log.undo import BRANCHING
from ..message import Message
from ..stores.port import Log
from ..stores.values import Address, BranchRow, Position, Row, Span
from ..tokens.cost import INLINE, off_loop

__all__ = [
    "TANGENT",
    "Place",
    "Sync",
    "TimelineLoader",
    "UnconfirmedWrite",
    "branch_of",
    "extend",
    "head_of",
    "sync_of",
]

TANGENT = "tangent"

MAX_FORMERS = 16
"""Rewinds, forks and restores that a loaded state can undo; a session can undo all of them."""

LOADED = 2
"""Times the exchanges that a state shows: so it can go back to any moment among those, and show as many."""

DAMAGED = "[A damaged entry was left out here; run `turnstate verify`.]"

_RECALLED = ("prompt", "bootstrap", "model", "settings", "checkpoint")


class UnconfirmedWrite(Struct, frozen=True, kw_only=True):
    """A write whose reply was lost: repeated under the same key, it is done once."""

    key: str
    digest: bytes
    timeline: Timeline | None
    count: int


class Place:
    """Where a timeline is in the log: its branch, its path, and how many of its entries are written."""

    def __init__(self, branch: int | None = None, path: Sequence[Span] = (), written: int = 0) -> None:
        self.branch, self.path, self.written = branch, list(path), written

    def position(self, seq: int) -> Position:
        """Return the position of an entry in the log by its number."""
        owners = (span.branch for span in self.path if span.first <= seq <= span.last)
        return Position(next(owners, self.path[-1].branch if self.path else self.branch or 1), seq)

    def wrote(self, count: int, head: Position) -> None:
        """Record that so many entries were written, up to a head."""
        self.written += count
        if count and self.path and self.path[0].branch == head.branch:
            self.path[0] = self.path[0]._replace(last=head.seq)
        elif count:
            first = self.path[0].last + 1 if self.path else 1
            self.path.insert(0, Span(head.branch, first, head.seq))


class Sync:
    """How far a state and its log agree: head and version as last seen, and the place of every timeline."""

    def __init__(self, head: Position | None = None, version: int | None = None) -> None:
        self.head, self.version = head, version
        self.unconfirmed: UnconfirmedWrite | None = None
        self._places = dict[Timeline, Place]()

    def place(self, timeline: Timeline) -> Place:
        """Return the place of a timeline; one without a branch if the log does not have it."""
        return self._places.setdefault(timeline, Place())

    def keep(self, timeline: Timeline, place: Place) -> None:
        """Record where a timeline is, which is in the log from now on."""
        self._places[timeline] = place
        timeline.recorded = True

    @property
    def branch(self) -> int:
        """The branch of the head."""
        return self.head.branch if self.head else 1


def sync_of(state: ConversationState) -> Sync:
    """Return the sync of a state; a new one if no session has seen the state yet."""
    if not isinstance(state.sync, Sync):
        state.sync = Sync()
    return state.sync


def head_of(state: ConversationState) -> Position | None:
    """Return the head of the log that a state was loaded from, or written to last."""
    return sync_of(state).head


def branch_of(state: ConversationState, number: int) -> int:
    """Return the branch that holds an entry of the state's path, by its number."""
    return sync_of(state).place(state.head).position(number).branch


class TimelineLoader:
    """Loads the timelines of one session: the branches as a conversation sees them, main and tangents."""

    def __init__(self, log: Log, at: Address, branches: Sequence[BranchRow], sync: Sync) -> None:
        self._log, self._at, self._sync = log, at, sync
        self._branches = {branch.id: branch for branch in branches}
        self._by_branch = dict[int, Timeline]()
        self.loaded = list[Timeline]()

    async def load(self, head: Position) -> Timeline:
        """Load the timeline that ends at a head, after those to which leaving and undoing lead back."""
        chain, place, formers = list[Position](), head, 0
        while place.branch not in self._by_branch:
            chain.append(place)
            branch = self._branches[place.branch]
            formers += branch.operation != TANGENT
            if branch.operation not in BRANCHING or branch.former is None or formers > MAX_FORMERS:
                break
            place = await tip(self._log, self._at, self._branches[branch.former])
        for place in reversed(chain):
            if place.branch not in self._by_branch:
                self._keep(await self._loaded(place, self._branches[place.branch]), place)
        return self._by_branch[head.branch]

    def _path(self, head: Position) -> list[Span]:
        return spans(self._branches.values(), head)

    def _keep(self, timeline: Timeline, head: Position) -> None:
        self._sync.keep(timeline, Place(head.branch, self._path(head), len(timeline.entries)))
        self._by_branch[head.branch] = timeline
        self.loaded.append(timeline)

    async def load_kept(self) -> None:
        """Load the tangents that lead back to what is loaded, each on the branches on which it was left."""
        for main in self.loaded:  # the list grows meanwhile
            branch = self._sync.place(main).branch
            for tangent in self._branches.values():
                if tangent.operation == TANGENT and tangent.former == branch:
                    await self._load_tip(tangent.id)
            since = max(0, main.created)
            for place, entry in enumerate(main.entries[since:], start=since):
                if isinstance(entry, Tangent) and not (entry.started or entry.undone):
                    main.leavings |= {place: left} if (left := await self._left(entry)) else {}

    async def _left(self, exit: Tangent) -> Timeline | None:
        """Load the timeline on which a tangent was left: its own, or one that a restore or a rewind made."""
        if exit.branch:
            return await self._load_tip(exit.branch) if exit.branch in self._branches else None
        named = (id for id, branch in self._branches.items() if branch.name == exit.name)
        id = next(named, None)
        return await self._load_tip(id) if id is not None else None

    async def _load_tip(self, id: int) -> Timeline:
        known = self._by_branch.get(id)
        return known or await self.load(await tip(self._log, self._at, self._branches[id]))

    def _tangent(self, id: int) -> BranchRow | None:
        """Return the tangent that a branch belongs to, if any."""
        branch = self._branches.get(id)
        while branch is not None and branch.operation != TANGENT:
            branch = self._branches.get(branch.parent) if branch.parent is not None else None
        return branch

    async def _loaded(self, head: Position, branch: BranchRow) -> Timeline:
        """Load a timeline on top of the former one; alone if that is not loaded as far as the fork."""
        path, fork = self._path(head), branch.fork_seq
        former = self._by_branch.get(branch.former or 0) if branch.operation in BRANCHING else None
        if former is None or not self._shares(former, path, fork):
            return await self._alone(path, branch, former)
        at = fork - former.first + 1
        if branch.operation == TANGENT:
            timeline = former.fork(name=branch.name, at=at)
        else:
            timeline = former.restored(at, branch.operation)
        if timeline.lacks_a_start and not former.lacks_a_start:
            return await self._alone(path, branch, former)
        for span in reversed(between(path, fork + 1, head.seq)):
            await extend(timeline, await self._log.read(self._at, span))
        return timeline

    def _shares(self, former: Timeline, path: Sequence[Span], fork: int) -> bool:
        """Return True if a timeline has the same entries up to a fork, and they are loaded."""
        if not 0 <= fork - former.first + 1 <= len(former.entries):
            return False
        return fork == 0 or between(path, fork, fork) == between(self._sync.place(former).path, fork, fork)

    async def _alone(self, path: Sequence[Span], branch: BranchRow, former: Timeline | None) -> Timeline:
        """Load a timeline that shares nothing with those that are loaded."""
        timeline, tangent = await self._root(path), self._tangent(branch.id)
        if tangent is not None and tangent.former is not None:
            timeline.parent, timeline.name = await self._load_tip(tangent.former), tangent.name
            timeline.begun = max(0, tangent.fork_seq - timeline.first + 1)
        if branch.operation in BRANCHING:
            timeline.operation, timeline.former = branch.operation, former
        timeline.created = branch.fork_seq - timeline.first + 1
        return timeline

    async def _root(self, path: Sequence[Span]) -> Timeline:
        rows, entries, exchanges = list[Row](), list[Entry](), 0
        async for row, entry in _entries_backwards(self._log, self._at, path):
            rows.append(row)
            entries.append(entry or Note(DAMAGED))
            exchanges += isinstance(entry, Message) and entry.role == "assistant"
            if exchanges > LOADED * MAX_CONVERSATION_STATE_HISTORY_LEN:  # one more, which may begin earlier
                break
        timeline = Timeline(first=rows[-1].seq if rows else 1)
        await self._recall(timeline, path, rows[::-1])
        if sum(len(row.body) for row in rows) > INLINE:
            await off_loop(lambda: timeline.extend(reversed(entries)), large=True)
        else:
            timeline.extend(reversed(entries))
        return timeline

    async def _recall(self, timeline: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the entries before the part that is loaded that still count."""
        earlier = between(path, 1, timeline.first - 1)
        if not earlier:
            return
        marks = await self._log.newest(self._at, earlier, _RECALLED)
        for entry in await entries_of([marks[kind] for kind in _RECALLED if kind in marks]):
            if isinstance(entry, Prompt | Bootstrap | ModelChange | Settings | Checkpoint):
                timeline.recall(entry)
        await self._recall_cuts(timeline, path, rows)
        for message in await messages_of(await self._shown_before(timeline, path)):
            timeline.recall(message)

    async def _shown_before(self, timeline: Timeline, path: Sequence[Span]) -> list[Row]:
        """Return what windows show of the part that is not loaded: system messages, and pinned questions."""
        mark = await cut_in_force(self._log, self._at, path)
        newest = await read_entry(mark) if mark else None
        cuts = in_force([newest]) if isinstance(newest, Cut) else ()
        ids = list(dict.fromkeys(id for one in cuts if isinstance(one, Cut) for id in one.pinned))
        found = await self._log.find(self._at, ids) if ids else []
        pinned = sorted((row for row in found if row.seq < timeline.first), key=lambda row: row.seq)
        return [*await leading(self._log, self._at, path, timeline.first), *pinned]

    async def _recall_cuts(self, timeline: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the cut that held before the part that is loaded, and those that reverts in it name."""
        earlier = between(path, 1, timeline.first - 1)
        entries = await entries_of([row for row in rows if row.kind == "revert"])
        reverts = [entry for entry in entries if isinstance(entry, Revert)]
        standing = await cut_in_force(self._log, self._at, earlier)
        named = {number for entry in reverts for number in (entry.former, entry.at)}
        numbers = {number for number in named if 0 < number < timeline.first}
        places = sorted(numbers | ({standing.seq} if standing else set()))
        for number, end in pairwise([*places, timeline.first]):
            for row in await self._log.read(self._at, between(path, number, number)[0]):
                await self._recall_cut(timeline, row, between(path, number, end - 1))

    async def _recall_cut(self, timeline: Timeline, row: Row, since: Sequence[Span]) -> None:
        cut = await read_entry(row)
        if not isinstance(cut, Cut):
            return
        timeline.recall(cut, at=row.seq)
        found = (await self._log.newest(self._at, since, ("summary",))).get("summary")
        summary = await read_entry(found) if found else None
        if isinstance(summary, Summary) and summary.cut == cut.id:
            timeline.recall(summary)


async def _entries_backwards(
    log: Log, at: Address, path: Sequence[Span]
) -> AsyncIterator[tuple[Row, Entry | None]]:
    """Walk a path from its head to its root; an entry that is damaged is None."""
    async for rows in pages_backwards(log, at, path):
        for row, entry in zip(reversed(rows), reversed(await entries_of(rows)), strict=True):
            yield row, entry


async def extend(timeline: Timeline, rows: Sequence[Row]) -> None:
    """Fold rows into a timeline that no one else has yet; many bytes are decoded in a thread."""
    large = sum(len(row.body) for row in rows) > INLINE
    await off_loop(lambda: timeline.extend(entry_of(row) or Note(DAMAGED) for row in rows), large=large)
