"""Conversation states of a session: the log loaded as a state, and a state's new entries written to the log.

Loading reads back from the head until the live history is full, and the timelines that tangents return to.
Writing goes timeline by timeline, parents first: a timeline that the log does not have becomes a branch, and
at the end the head is where the state is. New entries of one timeline are one write, all or nothing; a
process that dies between two writes leaves a conversation that is consistent and can be opened. A state that
another writer has overtaken is refused with `Conflict`, and nothing of it is lost.

What has been written, and where, is kept in a `Sync`: timelines and states know nothing of stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise, takewhile

import msgspec
from msgspec import Struct, structs

from .. import ids
from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation import settings as kept_settings
from ..conversation.timeline import MAX_CONVERSATION_STATE_HISTORY_LEN, Timeline
from ..entry import Bootstrap, Checkpoint, Cut, Entry, Note, Prompt, Revert, Settings, Summary, Tangent
from ..errors import Conflict, InputError, SessionError
from ..log.outbox import Eviction
from ..log.path import (
    between,
    cut_in_force,
    entries_of,
    entry_of,
    messages_of,
    read_entry,
    rows_backwards,
    spans,
    tip,
)
from ..message import Message
from ..stores.port import Log
from ..stores.values import (
    Address,
    Branch,
    Fork,
    Key,
    Parcel,
    Position,
    Receipt,
    Record,
    Row,
    SessionRow,
    Span,
)
from ..tokens.exact import INLINE, off_loop
from .windows import WindowMaker
from .writer import SessionWriter

__all__ = ["RESTORE", "TANGENT", "Sync", "branch_of", "commit", "head_of", "load"]

TANGENT, RESTORE = "tangent", "restore"
DAMAGED = "[An entry that stood here is damaged; run `turnstate verify`.]"

_RECALLED = ("prompt", "bootstrap", "settings", "checkpoint")


class UnconfirmedWrite(Struct, frozen=True, kw_only=True):
    """A write whose reply was lost: repeated under the same key, it is done once."""

    key: str
    digest: bytes
    timeline: Timeline | None
    count: int


class _Place:
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
        self._places = dict[Timeline, _Place]()

    def place(self, timeline: Timeline) -> _Place:
        """Return the place of a timeline; one without a branch if the log does not have it."""
        return self._places.setdefault(timeline, _Place())

    def keep(self, timeline: Timeline, place: _Place) -> None:
        """Record where a timeline is, which is in the log from now on."""
        self._places[timeline] = place
        timeline.recorded = True

    @property
    def branch(self) -> int:
        """The branch of the head."""
        return self.head.branch if self.head else 1


def _sync(state: ConversationState) -> Sync:
    if not isinstance(state.sync, Sync):
        state.sync = Sync()
    return state.sync


def head_of(state: ConversationState) -> Position | None:
    """Return the head of the log that a state was loaded from, or written to last."""
    return _sync(state).head


def branch_of(state: ConversationState, number: int) -> int:
    """Return the branch that holds an entry of the state's path, by its number."""
    return _sync(state).place(state.head).position(number).branch


class _Loader:
    """Loads the timelines of one session: the branches as a conversation sees them, main and tangents."""

    def __init__(self, log: Log, at: Address, branches: Sequence[Branch], sync: Sync) -> None:
        self._log, self._at, self._sync = log, at, sync
        self._branches = {branch.id: branch for branch in branches}
        self._by_branch = dict[int, Timeline]()
        self.loaded = list[Timeline]()

    async def load(self, head: Position) -> Timeline:
        """Load the timeline that ends at a head, after those that it leads back to."""
        aside = list[tuple[Position, Branch]]()
        place, tangent = head, self._tangent(head.branch)
        while tangent is not None and tangent.former is not None and place.branch not in self._by_branch:
            aside.append((place, tangent))
            place = await tip(self._log, self._at, self._branches[tangent.former])
            tangent = self._tangent(place.branch)
        timeline = self._by_branch.get(place.branch) or self._keep(await self._root(self._path(place)), place)
        for place, tangent in reversed(aside):
            timeline = self._keep(await self._aside(self._path(place), tangent, timeline), place)
        return timeline

    def _path(self, head: Position) -> list[Span]:
        return spans(self._branches.values(), head)

    def _keep(self, timeline: Timeline, head: Position) -> Timeline:
        self._sync.keep(timeline, _Place(head.branch, self._path(head), len(timeline.entries)))
        self._by_branch[head.branch] = timeline
        self.loaded.append(timeline)
        return timeline

    async def load_kept(self) -> None:
        """Load the tangents that were left and lead back to what is loaded."""
        known = {timeline.name for timeline in self.loaded}
        for branch in self._branches.values():
            main = self._by_branch.get(branch.former or 0)
            if branch.operation == TANGENT and branch.name not in known and main is not None:
                await self.load(await tip(self._log, self._at, self._branches[self._left_on(branch, main)]))

    def _left_on(self, tangent: Branch, main: Timeline) -> int:
        """Return the branch that a tangent was left on: its own, or one that a restore or a rewind made."""
        left = (
            entry.branch
            for entry in reversed(main.entries)
            if isinstance(entry, Tangent) and entry.name == tangent.name and entry.branch
        )
        return next((id for id in left if id in self._branches), tangent.id)

    def _tangent(self, id: int) -> Branch | None:
        """Return the tangent that a branch belongs to, if any."""
        branch = self._branches.get(id)
        while branch is not None and branch.operation != TANGENT:
            branch = self._branches.get(branch.parent) if branch.parent is not None else None
        return branch

    async def _aside(self, path: Sequence[Span], tangent: Branch, parent: Timeline) -> Timeline:
        """Load a tangent on top of its parent; alone if the parent is not loaded as far as its beginning."""
        begun = tangent.fork_seq
        entries = begun - parent.first + 1
        at_same_place = between(path, begun, begun) == between(self._sync.place(parent).path, begun, begun)
        if 0 <= entries <= len(parent.entries) and (at_same_place or begun == 0):
            timeline = parent.fork(name=tangent.name, at=entries)
            for span in reversed(between(path, begun + 1, path[0].last) if path else []):
                await _extend(timeline, await self._log.read(self._at, span))
        else:
            timeline = await self._root(path)
            timeline.parent, timeline.name = parent, tangent.name
        return timeline

    async def _root(self, path: Sequence[Span]) -> Timeline:
        rows, roles, exchanges = list[Row](), list[str](), 0
        async for row in rows_backwards(self._log, self._at, path):
            role = next((message.role for message in await messages_of([row])), "")
            exchanges += role == "assistant"
            if exchanges > MAX_CONVERSATION_STATE_HISTORY_LEN:
                rows = rows[: _turn_edge(roles)]
                break
            rows.append(row)
            roles.append(role)
        rows.reverse()
        timeline = Timeline(first=rows[0].seq if rows else 1)
        await self._recall(timeline, path, rows)
        await _extend(timeline, rows)
        return timeline

    async def _recall(self, timeline: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the entries before the part that is loaded that still count."""
        earlier = between(path, 1, timeline.first - 1)
        if not earlier:
            return
        marks = await self._log.newest(self._at, earlier, _RECALLED)
        for entry in await entries_of([marks[kind] for kind in _RECALLED if kind in marks]):
            if isinstance(entry, Prompt | Bootstrap | Settings | Checkpoint):
                timeline.recall(entry)
        await self._recall_cuts(timeline, path, rows)

    async def _recall_cuts(self, timeline: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the cut that held before the part that is loaded, and those that reverts in it lead to."""
        earlier = between(path, 1, timeline.first - 1)
        entries = await entries_of([row for row in rows if row.kind == "revert"])
        reverts = [entry for entry in entries if isinstance(entry, Revert)]
        standing = await cut_in_force(self._log, self._at, earlier)
        numbers = {entry.former for entry in reverts if 0 < entry.former < timeline.first}
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


def _turn_edge(backwards: Sequence[str]) -> int:
    """Count the rows down to the first complete turn; all of them if none begins among them.

    The rows are given by the roles of their messages, the newest first; other entries have none.
    """
    answered = True  # what was read before ends with an answer
    for place in range(len(backwards) - 1, -1, -1):
        role = backwards[place]
        if answered and role == "user":
            return place + 1
        answered = role == "assistant" if role else answered
    return len(backwards)


async def _extend(timeline: Timeline, rows: Sequence[Row]) -> None:
    """Fold rows into a timeline that no one else has yet; many bytes are decoded in a thread."""
    large = sum(len(row.body) for row in rows) > INLINE
    await off_loop(lambda: timeline.extend(entry_of(row) or Note(DAMAGED) for row in rows), large=large)


async def load(writer: SessionWriter, *, os: Os | None, policy: Policy) -> ConversationState:
    """Load the conversation as it is now, with its tangents."""
    row = await writer.refresh()
    branches = await writer.log.branches(writer.at)
    sync = Sync(row.head, row.version)
    loader = _Loader(writer.log, writer.at, branches, sync)
    state = ConversationState(row.id, os=os, policy=policy)
    state.head = await loader.load(row.head)
    await loader.load_kept()
    state.strands, state.sync = loader.loaded, sync
    if state.head.settings is not None:
        kept_settings.restore(state, state.head.settings.fields)
    state.file_line_tracker = dict(state.head.trackers)
    return state


async def commit(writer: SessionWriter, windows: WindowMaker, state: ConversationState) -> Receipt | None:
    """Write the entries of a state that the log does not have; return None if there are none."""
    return await _Commit(writer, windows, state).run()


class _Commit:
    """One commit of a state."""

    def __init__(self, writer: SessionWriter, windows: WindowMaker, state: ConversationState) -> None:
        self._writer, self._windows, self._state = writer, windows, state
        self._sync = _sync(state)

    async def run(self) -> Receipt | None:
        """Write every timeline, then move the head to where the state is."""
        self._state.record_settings()
        self._check(await self._writer.refresh())
        receipt: Receipt | None = None
        for timeline in self._state.strands:
            if timeline.source is None:
                receipt = await self._write_tree(timeline) or receipt
        branch = self._sync.place(self._state.head).branch
        if branch != self._sync.branch:
            receipt = await self._commit(select=branch)
            self._windows.forget()
        return receipt

    def _check(self, row: SessionRow) -> None:
        """Refuse a state of another session, or one that the log has overtaken."""
        state, sync = self._state, self._sync
        if state.conversation_id != row.id:
            raise InputError(f"conversation {state.conversation_id:.80} is not that of session {row.id}")
        if sync.head is None and row.seq and sync.unconfirmed is None:
            raise InputError(
                f"session {row.id} has a conversation already; load it with session.conversation()"
            )
        sync.head = sync.head or (Position(1, 0) if sync.unconfirmed else row.head)
        sync.version = row.version if sync.version is None else sync.version
        if (sync.head, sync.version) != (row.head, row.version) and sync.unconfirmed is None:
            raise Conflict(
                f"session {row.id} moved on since this state was loaded; load it again",
                version=row.version,
                head=row.head,
            )

    async def _write_tree(self, first: Timeline) -> Receipt | None:
        """Write a timeline and all that fork from it, each fork before what its source says after it.

        So the entries of a tangent are in the log before the entry that says that it was left.
        """
        receipt: Receipt | None = None
        waiting: list[tuple[Timeline, int | None]] = [(first, None)]
        while waiting:
            timeline, until = waiting.pop()
            if until is not None:
                receipt = await self._write(timeline, until=until) or receipt
                continue
            forks = sorted(
                (one for one in self._state.strands if one.source is timeline), key=self._forked_at
            )
            steps = [step for one in forks for step in ((timeline, self._forked_at(one)), (one, None))]
            waiting += reversed([*steps, (timeline, len(timeline.entries))])
        return receipt

    def _forked_at(self, timeline: Timeline) -> int:
        """Return the number of entries of its source before a timeline; 0 if it has a branch already."""
        return timeline.shared_with_source if self._sync.place(timeline).branch is None else 0

    async def _write(self, timeline: Timeline, *, until: int) -> Receipt | None:
        """Write the new entries of a timeline on its branch, which may be new, too."""
        place, receipt = self._sync.place(timeline), None
        if place.branch is None and timeline.source is not None:
            receipt = await self._fork(timeline, timeline.source)
            place = self._sync.place(timeline)
        if place.branch is None:
            place.branch = self._sync.branch
        while place.written < until:
            moved = place.branch if place.branch != self._sync.branch else None
            entries = self._unconfirmed_only(timeline, self._new_entries(timeline, place.written, until))
            parcels = [
                self._parcel(timeline, one, number)
                for number, one in enumerate(entries, start=place.written)
                if isinstance(one, Cut) and one.asked.get("operation") != "clear" and one.covers[1]
            ]
            records = await self._writer.records(entries)
            receipt = await self._commit(timeline, records=records, select=moved, parcels=parcels)
            place.wrote(len(entries), receipt.head)
            self._sync.keep(timeline, place)
            if moved is None:
                self._windows.grow(receipt, entries, records)
            else:
                self._windows.forget()
        return receipt

    def _new_entries(self, timeline: Timeline, written: int, until: int) -> list[Entry]:
        """Return the entries to write next; a tangent that was left is named by its branch."""
        for number in (one for one in timeline.leavings if written <= one < until):
            entry, branch = timeline.entries[number], self._sync.place(timeline.leavings[number]).branch
            if isinstance(entry, Tangent) and branch is not None:
                timeline.entries.replace(number, structs.replace(entry, branch=branch))
        entries = timeline.entries[written:until]
        return [entry.owned() if isinstance(entry, Message) else entry for entry in entries]

    def _unconfirmed_only(self, timeline: Timeline, entries: list[Entry]) -> list[Entry]:
        """Return no more than an unconfirmed write had: it is repeated exactly as it was."""
        unconfirmed = self._sync.unconfirmed
        repeats = unconfirmed is not None and unconfirmed.timeline is timeline
        return entries[: unconfirmed.count] if unconfirmed is not None and repeats else entries

    async def _fork(self, timeline: Timeline, source: Timeline) -> Receipt:
        """Create the branch of a timeline after what it shares with its source, with its first entries.

        The source is the head before it: a tangent leads back there, and undoing a restore, too.
        """
        origin = self._sync.place(source)
        if origin.branch != self._sync.branch:
            await self._commit(select=origin.branch)
        shared = timeline.shared_with_source
        operation = TANGENT if timeline.restores is None else RESTORE
        at = origin.position(timeline.first - 1 + shared)
        name = timeline.name if operation == TANGENT else ""
        fork = Fork(parent=at.branch, seq=at.seq, name=name, operation=operation)
        first = list(takewhile(_needs_no_branch, timeline.entries[shared:]))
        entries = self._unconfirmed_only(timeline, first)
        records = await self._writer.records(entries)
        receipt = await self._commit(timeline, records=records, fork=fork)
        place = _Place(receipt.branch, between(origin.path, 1, at.seq), shared)
        place.wrote(len(entries), receipt.head)
        self._sync.keep(timeline, place)
        self._windows.forget()
        return receipt

    def _parcel(self, timeline: Timeline, cut: Cut, number: int) -> Parcel:
        """Name the messages that leave with a cut, for the memory engine."""
        first, last = timeline.fold.evicted(cut)
        eviction = Eviction(
            epoch=self._writer.epoch,
            branch=self._sync.place(timeline).branch or 0,
            seq=timeline.first + number,
            cut=cut.id,
            first=first,
            last=last,
            summary=cut.summary,
        )
        return eviction.parcel(self._writer.at, due=self._writer.clock())

    async def _commit(
        self,
        timeline: Timeline | None = None,
        *,
        records: Sequence[Record] = (),
        fork: Fork | None = None,
        select: int | None = None,
        parcels: Sequence[Parcel] = (),
    ) -> Receipt:
        """Write once, even if the reply is lost and the same state is committed again."""
        sync, digest = self._sync, _digest(records, fork, select)
        key = Key(str(ids.message_id()), digest)
        if sync.unconfirmed is not None and sync.unconfirmed.digest == digest:
            key = Key(sync.unconfirmed.key, digest)
        try:
            receipt = await self._writer.commit(
                records=records,
                fork=fork,
                select=select,
                parcels=parcels,
                expected_head=sync.head or Position(1, 0),
                expected_version=sync.version,
                key=key,
            )
        except SessionError:
            sync.unconfirmed = None  # it was refused
            raise
        except BaseException:
            count = len(records) if timeline is not None else 0
            sync.unconfirmed = UnconfirmedWrite(key=key.name, digest=digest, timeline=timeline, count=count)
            raise
        sync.head, sync.version, sync.unconfirmed = receipt.head, receipt.version, None
        return receipt


def _needs_no_branch(entry: Entry) -> bool:
    """Return True if an entry can be written with its branch; others name the number of the branch."""
    return not isinstance(entry, Cut | Tangent) or (isinstance(entry, Tangent) and bool(entry.started))


def _digest(records: Sequence[Record], fork: Fork | None, select: int | None) -> bytes:
    """Return a digest of a write, which tells it from others."""
    summed = hashlib.blake2b(msgspec.json.encode((fork, select)), digest_size=16)
    for record in records:
        summed.update(len(record.body).to_bytes(8, "big") + record.body)
    return summed.digest()
