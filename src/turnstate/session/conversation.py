"""Conversation states of a session: loaded from the log, and brought up to date with it.

A conversation state sees the branches of a session as timelines: the main one and its tangents. Loading reads
backwards from the head until the live history is full at every moment that it shows, and then the timelines
that tangents and undo lead to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

from ..context.cut import MAX_CONVERSATION_STATE_HISTORY_LEN
from ..context.policy import Policy
from ..context.view import in_force
from ..conversation import ConversationState, Os
from ..conversation.edits import kept_tracking
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
from ..errors import Conflict, SessionError, StoreError
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
from ..stores.values import Address, BranchRow, Position, Row, SessionRow, Span
from ..tokens.cost import INLINE, off_loop
from .commit import TANGENT, Place, Sync, overtaken, sync_of
from .windows import WindowMaker
from .writer import SessionWriter

MAX_FORMERS = 16
"""Maximum rewinds, forks and restores that a loaded state can undo; a session can undo all of them."""

LOADED = 2
"""How many times the shown exchanges to load, so that a state can go back to any of them and show as many."""

MAX_FOLDED = 1_000
"""Maximum new entries folded into a state on the event loop; with more, the conversation is loaded again."""

DAMAGED = "[A damaged entry was left out here; run `turnstate verify`.]"

_RECALLED = ("prompt", "bootstrap", "model", "settings", "checkpoint")


_SETTINGS = ("settings", "model", "lines")
"""The kinds of entries that change what a state has besides its history."""


async def load(
    writer: SessionWriter, windows: WindowMaker, *, os: Os | None, policy: Policy
) -> ConversationState:
    """Load the conversation as it is now, with its tangents.

    If it has more exchanges than a state holds, and no cut says so yet, that cut is written first: only here
    can everything that it covers be read.
    """
    while True:
        state = await _loaded(writer, os=os, policy=policy)
        if not (state.head.lacks_a_start or state.head.is_over_cap):
            return state
        loaded, cut = await windows.capped()
        if cut is None:
            return state
        try:
            await windows.record(loaded, [cut])
        except Conflict:
            continue
        except (SessionError, StoreError):  # leased, ended or not writable: it is written with the state
            state.add(cut)
            return state


async def _loaded(writer: SessionWriter, *, os: Os | None, policy: Policy) -> ConversationState:
    row = await writer.refresh()
    branches = await writer.log.branches(writer.at)
    sync = Sync(row.head, row.version)
    loader = _Timelines(writer.log, writer.at, branches, sync)
    state = ConversationState(row.id, os=os, policy=policy)
    state.head = await loader.load(row.head)
    await loader.load_kept()
    state.timelines, state.sync, state.default_counter = loader.loaded, sync, writer.start.name
    state.apply_settings()
    return state


async def catch_up(writer: SessionWriter, windows: WindowMaker, state: ConversationState) -> None:
    """Add what was appended since a state was loaded; unwritten entries of the state come after it.

    Raise `Conflict` if the head is on another branch and the state has unwritten entries, or if the state has
    moved its head and was not written since. Other tasks may add to the state while this one reads, so it
    looks for unwritten entries again after each read and then changes the state without waiting in between.
    """
    sync, row = sync_of(state), await writer.refresh()
    before = sync.head or Position(1, 0)
    if before == row.head or sync.unconfirmed is not None:
        return
    unwritten, trackers = _unwritten(state, sync, row), dict(state.head.trackers)
    rows, entries = list[Row](), list[Entry | None]()
    if not unwritten and before.branch == row.branch and 0 < row.seq - before.seq <= MAX_FOLDED:
        rows = await writer.log.read(writer.at, Span(row.branch, before.seq + 1, row.seq))
        entries = await entries_of(rows)
    if rows and not _unwritten(state, sync, row):
        state.head.extend(entry or Note(DAMAGED) for entry in entries)
        sync.place(state.head).wrote(len(rows), row.head)
        sync.head, sync.version = row.head, row.version
        if any(one.kind in _SETTINGS for one in rows):
            with kept_tracking(state, since=trackers):
                state.apply_settings()
        if not state.head.lacks_a_start:  # undoing a compaction may show what is not loaded
            state.cap()
            return
    loaded = await load(writer, windows, os=state.os, policy=state.policy)
    unwritten = _unwritten(state, sync, writer.row)
    with kept_tracking(state, since=trackers):
        state.adopt(loaded)
        since = before.seq - (sync_of(state).head or before).seq
        new = state.head.entries[since:] if unwritten else ()
        for entry in unwritten:
            if entry not in new:  # the reply to a write may have been lost
                state.head.add(state.head.fold.archiving(entry) if isinstance(entry, Cut) else entry)
        state.apply_settings()
    state.cap()


def _unwritten(state: ConversationState, sync: Sync, row: SessionRow) -> list[Entry]:
    """Return the head's entries that are not in the log.

    Raise `Conflict` if they cannot be moved: those of other timelines, and those of a head that the state
    has moved since it was last written.
    """
    waiting = {one: list(one.entries[sync.place(one).written :]) for one in state.timelines}
    waiting = {one: entries for one, entries in waiting.items() if entries}
    branch = sync.place(state.head).branch
    has_moved = branch != sync.branch if branch is not None else state.head.former is not None
    if has_moved or (waiting and (row.branch != sync.branch or set(waiting) != {state.head})):
        raise overtaken(row.id, row.version, row.head)
    return waiting.get(state.head, [])


class _Timelines:
    """Loads the timelines of one session: the branches as a conversation sees them, main and tangents."""

    def __init__(self, log: Log, at: Address, branches: Sequence[BranchRow], sync: Sync) -> None:
        self._log, self._at, self._sync = log, at, sync
        self._branches = {branch.id: branch for branch in branches}
        self._by_branch = dict[int, Timeline]()
        self.loaded = list[Timeline]()

    async def load(self, head: Position) -> Timeline:
        """Load the timeline that ends at a head, after those that leaving and undoing lead back to."""
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
        self._sync.places[timeline] = Place(head.branch, self._path(head), len(timeline.entries))
        timeline.recorded = True
        self._by_branch[head.branch] = timeline
        self.loaded.append(timeline)

    async def load_kept(self) -> None:
        """Load the tangents that lead back to loaded timelines, each on the branches where it was left."""
        for main in self.loaded:  # the list grows meanwhile
            branch = self._sync.places[main].branch
            for tangent in self._branches.values():
                if tangent.operation == TANGENT and tangent.former == branch:
                    await self._load_tip(tangent.id)
            since = max(0, main.created)
            for place, entry in enumerate(main.entries[since:], start=since):
                if isinstance(entry, Tangent) and not (entry.started or entry.undone):
                    main.leavings |= {place: left} if (left := await self._left(entry)) else {}

    async def _left(self, exit: Tangent) -> Timeline | None:
        """Load the timeline where a tangent was left: its own, or one that a restore or a rewind created."""
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
        """Load a timeline on top of the former one, or alone if that one is not loaded at the fork."""
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
            await _extend(timeline, await self._log.read(self._at, span))
        return timeline

    def _shares(self, former: Timeline, path: Sequence[Span], fork: int) -> bool:
        """Return True if a timeline has the same entries up to a fork, and they are loaded."""
        if not 0 <= fork - former.first + 1 <= len(former.entries):
            return False
        return fork == 0 or between(path, fork, fork) == between(self._sync.places[former].path, fork, fork)

    async def _alone(self, path: Sequence[Span], branch: BranchRow, former: Timeline | None) -> Timeline:
        """Load a timeline that shares nothing with the loaded ones."""
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
        """Recall the entries from before the loaded part that still apply."""
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
        """Return what windows show from before the loaded part: system messages and pinned questions."""
        mark = await cut_in_force(self._log, self._at, path)
        newest = await read_entry(mark) if mark else None
        cuts = in_force([newest]) if isinstance(newest, Cut) else ()
        ids = list(dict.fromkeys(id for one in cuts if isinstance(one, Cut) for id in one.pinned))
        found = await self._log.find(self._at, ids) if ids else []
        pinned = sorted((row for row in found if row.seq < timeline.first), key=lambda row: row.seq)
        return [*await leading(self._log, self._at, path, timeline.first), *pinned]

    async def _recall_cuts(self, timeline: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Recall the cut in force before the loaded part, and the cuts that reverts in that part name."""
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
    """Walk a path from its head to its root; a damaged entry is None."""
    async for rows in pages_backwards(log, at, path):
        for row, entry in zip(reversed(rows), reversed(await entries_of(rows)), strict=True):
            yield row, entry


async def _extend(timeline: Timeline, rows: Sequence[Row]) -> None:
    """Fold rows into a timeline that no other task can see yet; large rows are folded in a thread."""
    large = sum(len(row.body) for row in rows) > INLINE
    await off_loop(lambda: timeline.extend(entry_of(row) or Note(DAMAGED) for row in rows), large=large)
