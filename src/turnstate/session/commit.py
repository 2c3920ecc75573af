"""Commits the new entries of a conversation state to the log of its session.

The `Sync` of a state records which part of it is in the log, and where: timelines and states know nothing
about stores.

Timelines are written one by one, parents first: a timeline that is not in the log becomes a branch, and at
the end the head moves to where the state is. The new entries of a timeline are one atomic write if nothing
forks from them; otherwise they are split at each new fork, and the fork is written in between. A process
that dies between two writes leaves a conversation that is consistent and can be opened. A state that another
writer has overtaken is refused with `Conflict`, and nothing in it is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import takewhile

import msgspec
from msgspec import Struct, structs

from .. import ids
from ..conversation import ConversationState
from ..conversation.timeline import Timeline
from ..entry import Cut, Entry, Tangent
from ..errors import Conflict, InputError, SessionError
from ..log.records import eviction
from ..stores.values import Fork, Key, Parcel, Position, Receipt, Record, SessionRow, Span
from ..value import refuse
from .writer import SessionWriter

TANGENT = "tangent"


class UnconfirmedWrite(Struct, frozen=True, kw_only=True):
    """A write whose reply was lost; repeating it under the same key applies it only once."""

    key: str
    digest: bytes
    timeline: Timeline | None
    count: int


class Place(Struct):
    """Where a timeline is in the log: its branch, its path, and how many of its entries are written."""

    branch: int | None = None
    path: list[Span] = []
    written: int = 0

    def position(self, seq: int) -> Position:
        """Return the position of an entry in the log by its number."""
        owners = (span.branch for span in self.path if span.first <= seq <= span.last)
        return Position(next(owners, self.path[-1].branch if self.path else self.branch or 1), seq)

    def path_to(self, seq: int) -> list[Span]:
        """Return the part of the path that leads to an entry."""
        return [span._replace(last=min(span.last, seq)) for span in self.path if span.first <= seq]

    def wrote(self, count: int, head: Position) -> None:
        """Record that `count` entries were written, up to a head."""
        self.written += count
        if count and self.path and self.path[0].branch == head.branch:
            self.path[0] = self.path[0]._replace(last=head.seq)
        elif count:
            first = self.path[0].last + 1 if self.path else 1
            self.path.insert(0, Span(head.branch, first, head.seq))


class Sync(Struct):
    """How far a state and its log agree: head and version as last seen, and the place of every timeline."""

    head: Position | None = None
    version: int | None = None
    unconfirmed: UnconfirmedWrite | None = None
    places: dict[Timeline, Place] = {}

    def place(self, timeline: Timeline) -> Place:
        """Return the place of a timeline; it has no branch if the timeline is not in the log."""
        return self.places.setdefault(timeline, Place())

    @property
    def branch(self) -> int:
        """The branch of the head."""
        return self.head.branch if self.head else 1


def sync_of(state: ConversationState) -> Sync:
    """Return the sync of a state; a new one if no session has seen the state yet."""
    if not isinstance(state, ConversationState):
        refuse("state", state, "a value of type ConversationState")
    if not isinstance(state.sync, Sync):
        state.sync = Sync()
    return state.sync


def head_of(state: ConversationState) -> Position | None:
    """Return the head of the log when a state was last loaded or written."""
    return sync_of(state).head


def branch_of(state: ConversationState, number: int) -> int:
    """Return the branch that holds an entry of the state's path, by its number."""
    return sync_of(state).place(state.head).position(number).branch


class StateCommit:
    """One commit of a state."""

    def __init__(self, writer: SessionWriter, state: ConversationState) -> None:
        self._writer, self._state = writer, state
        self._sync = sync_of(state)

    async def run(self) -> Receipt | None:
        """Write every timeline, then move the head to where the state is; return None if nothing is new."""
        self._state.default_counter = self._writer.start.name
        self._state.record_settings()
        self._state.cap()
        row, sync = self._writer.row, self._sync
        is_known = (sync.head, sync.version) == (row.head, row.version)
        self._check(row if is_known else await self._writer.refresh())
        receipt: Receipt | None = None
        for timeline in self._state.timelines:
            if timeline.former is None:
                receipt = await self._write_tree(timeline) or receipt
        branch = self._sync.place(self._state.head).branch
        if branch != self._sync.branch:
            receipt = await self._commit(select=branch)
            self._writer.moved_head()
        if receipt is None and is_known:  # a write would have been refused if another process wrote
            self._check(await self._writer.refresh())
        return receipt

    def _check(self, row: SessionRow) -> None:
        """Refuse a state of another session, or one that the log has overtaken."""
        state, sync = self._state, self._sync
        if state.conversation_id != row.id:
            raise InputError(f"conversation {state.conversation_id:.80} does not belong to session {row.id}")
        if sync.head is None and row.seq and sync.unconfirmed is None:
            raise InputError(
                f"session {row.id} has a conversation already; load it with session.conversation()"
            )
        sync.head = sync.head or (Position(1, 0) if sync.unconfirmed else row.head)
        sync.version = row.version if sync.version is None else sync.version
        if (sync.head, sync.version) != (row.head, row.version) and sync.unconfirmed is None:
            raise overtaken(row.id, row.version, row.head)

    async def _write_tree(self, first: Timeline) -> Receipt | None:
        """Write a timeline and all its forks, each fork before the entries that come after it.

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
                (one for one in self._state.timelines if one.former is timeline), key=self._forked_at
            )
            steps = [step for one in forks for step in ((timeline, self._forked_at(one)), (one, None))]
            waiting += reversed([*steps, (timeline, len(timeline.entries))])
        return receipt

    def _forked_at(self, timeline: Timeline) -> int:
        """Return the number of entries before the fork of a timeline; 0 if it already has a branch."""
        return timeline.shared if self._sync.place(timeline).branch is None else 0

    async def _write(self, timeline: Timeline, *, until: int) -> Receipt | None:
        """Write the new entries of a timeline to its branch, which may have to be created first."""
        place, receipt = self._sync.place(timeline), None
        if place.branch is None and timeline.former is not None:
            receipt = await self._fork(timeline, timeline.former)
            place = self._sync.place(timeline)
        if place.branch is None:
            place.branch = self._sync.branch
        while place.written < until:
            moved = place.branch if place.branch != self._sync.branch else None
            entries = self._unconfirmed_only(timeline, self._new_entries(timeline, place.written, until))
            parcels = list[Parcel]()
            for number, one in enumerate(entries, start=timeline.first + place.written):
                if isinstance(one, Cut):
                    after, now = Position(place.branch, number), self._writer.clock()
                    at, epoch = self._writer.at, self._writer.epoch
                    parcels += eviction(timeline.fold, one, at, epoch=epoch, after=after, due=now)
            records = await self._writer.records(entries, timeline.model_before(place.written))
            receipt = await self._commit(timeline, records=records, select=moved, parcels=parcels)
            place.wrote(len(entries), receipt.head)
            timeline.recorded = True
            if moved is None:
                self._writer.wrote(receipt, None, records)
            else:
                self._writer.moved_head()
        return receipt

    def _new_entries(self, timeline: Timeline, written: int, until: int) -> list[Entry]:
        """Return the entries to write next; a tangent that was left is named by its branch."""
        for number in (one for one in timeline.leavings if written <= one < until):
            entry, branch = timeline.entries[number], self._sync.place(timeline.leavings[number]).branch
            if isinstance(entry, Tangent) and branch is not None:
                timeline.entries.replace(number, structs.replace(entry, branch=branch))
        return timeline.entries[written:until]

    def _unconfirmed_only(self, timeline: Timeline, entries: list[Entry]) -> list[Entry]:
        """Return only as many entries as an unconfirmed write had: it is repeated exactly as it was."""
        unconfirmed = self._sync.unconfirmed
        repeats = unconfirmed is not None and unconfirmed.timeline is timeline
        return entries[: unconfirmed.count] if unconfirmed is not None and repeats else entries

    async def _fork(self, timeline: Timeline, former: Timeline) -> Receipt:
        """Create the branch of a timeline, with its first entries, after those shared with the former one.

        The former timeline is the head before that, so undo and leaving a tangent lead back there.
        """
        origin = self._sync.place(former)
        if origin.branch != self._sync.branch:
            await self._commit(select=origin.branch)
        shared, operation = timeline.shared, timeline.operation
        at = origin.position(timeline.first - 1 + shared)
        name = timeline.name if operation == TANGENT else ""
        fork = Fork(parent=at.branch, seq=at.seq, name=name, operation=operation)
        first = list(takewhile(_needs_no_branch, timeline.entries[shared:]))
        entries = self._unconfirmed_only(timeline, first)
        records = await self._writer.records(entries, timeline.model_before(shared))
        receipt = await self._commit(timeline, records=records, fork=fork)
        place = Place(receipt.branch, origin.path_to(at.seq), shared)
        place.wrote(len(entries), receipt.head)
        self._sync.places[timeline] = place
        timeline.recorded = True
        self._writer.moved_head()
        return receipt

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
        except SessionError as refusal:
            sync.unconfirmed = None
            if isinstance(refusal, Conflict):
                raise overtaken(self._writer.at.session, refusal.version, refusal.head) from None
            raise
        except BaseException:
            count = len(records) if timeline is not None else 0
            sync.unconfirmed = UnconfirmedWrite(key=key.name, digest=digest, timeline=timeline, count=count)
            raise
        sync.head, sync.version, sync.unconfirmed = receipt.head, receipt.version, None
        return receipt


def overtaken(session: str, version: int, head: tuple[int, int]) -> Conflict:
    """Return the error for a state that lacks entries that were written to its session."""
    text = f"session {session} moved on since this state was loaded; load it again"
    return Conflict(text, version=version, head=head)


def _needs_no_branch(entry: Entry) -> bool:
    """Return True if an entry can be written together with its branch; others contain the branch's number."""
    return not isinstance(entry, Cut | Tangent) or (isinstance(entry, Tangent) and bool(entry.started))


def _digest(records: Sequence[Record], fork: Fork | None, select: int | None) -> bytes:
    """Return a digest that identifies a write."""
    summed = hashlib.blake2b(msgspec.json.encode((fork, select)), digest_size=16)
    for record in records:
        summed.update(len(record.body).to_bytes(8, "big") + record.body)
    return summed.digest()
