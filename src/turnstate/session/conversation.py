"""Conversation states of a session: the log loaded as a state, and a state's new entries written to the log.

Writing goes timeline by timeline, parents first: a timeline that the log does not have becomes a branch, and
at the end the head is where the state is. New entries of one timeline are one write, all or nothing; a
process that dies between two writes leaves a conversation that is consistent and can be opened. A state that
another writer has overtaken is refused with `Conflict`, and nothing of it is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import takewhile

import msgspec
from msgspec import structs

from .. import ids
from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation.edits import kept_tracking
from ..conversation.timeline import Timeline
from ..entry import Cut, Entry, Tangent
from ..errors import Conflict, InputError, SessionError, StoreError
from ..log.path import between
from ..message import Message
from ..stores.values import Fork, Key, Parcel, Position, Receipt, Record, SessionRow, Span
from .timelines import TANGENT, Place, Sync, TimelineLoader, UnconfirmedWrite, extend, sync_of
from .windows import WindowMaker
from .writer import SessionWriter

__all__ = ["catch_up", "commit", "load"]

_SETTINGS = ("settings", "model", "lines")
"""The kinds of entries that change what a state has besides its history."""


async def load(
    writer: SessionWriter, windows: WindowMaker, *, os: Os | None, policy: Policy
) -> ConversationState:
    """Load the conversation as it is now, with its tangents.

    If it has more exchanges than a state holds, and no cut says so yet, that cut is written first: only here
    can everything be read that it covers.
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
    loader = TimelineLoader(writer.log, writer.at, branches, sync)
    state = ConversationState(row.id, os=os, policy=policy)
    state.head = await loader.load(row.head)
    await loader.load_kept()
    state.timelines, state.sync, state.default_counter = loader.loaded, sync, writer.start.name
    state.apply_settings()
    return state


async def commit(writer: SessionWriter, windows: WindowMaker, state: ConversationState) -> Receipt | None:
    """Write the entries of a state that the log does not have; return None if there are none."""
    receipt = await _Commit(writer, state).run()
    if receipt is not None and state.head.lacks_a_start:  # an undo or a restore led to what is not loaded
        state.adopt(await load(writer, windows, os=state.os, policy=state.policy))
    return receipt


async def catch_up(writer: SessionWriter, windows: WindowMaker, state: ConversationState) -> None:
    """Take in what was appended since a state was loaded; what the state has not written comes after it.

    Raise `Conflict` if the head is on another branch and the state has entries that are not written.
    """
    row, sync = await writer.refresh(), sync_of(state)
    before = sync.head or Position(1, 0)
    if before == row.head or sync.unconfirmed is not None:
        return
    unwritten, trackers = _unwritten(state, sync, row), dict(state.head.trackers)
    if not unwritten and before.branch == row.branch and before.seq < row.seq:
        rows = await writer.log.read(writer.at, Span(row.branch, before.seq + 1, row.seq))
        await extend(state.head, rows)
        sync.place(state.head).wrote(len(rows), row.head)
        sync.head, sync.version = row.head, row.version
        if any(one.kind in _SETTINGS for one in rows):
            with kept_tracking(state, since=trackers):
                state.apply_settings()
        if not state.head.lacks_a_start:  # a compaction that was undone may show what is not loaded
            state.cap()
            return
    loaded = await load(writer, windows, os=state.os, policy=state.policy)
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
    """Return the entries of the head that are not in the log; those of other timelines cannot be moved."""
    waiting = {one: list(one.entries[sync.place(one).written :]) for one in state.timelines}
    waiting = {one: entries for one, entries in waiting.items() if entries}
    if waiting and (row.branch != sync.branch or set(waiting) != {state.head}):
        raise Conflict(
            f"session {row.id} moved on since this state was loaded; load it again",
            version=row.version,
            head=row.head,
        )
    return waiting.get(state.head, [])


class _Commit:
    """One commit of a state."""

    def __init__(self, writer: SessionWriter, state: ConversationState) -> None:
        self._writer, self._state = writer, state
        self._sync = sync_of(state)

    async def run(self) -> Receipt | None:
        """Write every timeline, then move the head to where the state is."""
        self._state.default_counter = self._writer.start.name
        self._state.record_settings()
        self._state.cap()
        self._check(await self._writer.refresh())
        receipt: Receipt | None = None
        for timeline in self._state.timelines:
            if timeline.former is None:
                receipt = await self._write_tree(timeline) or receipt
        branch = self._sync.place(self._state.head).branch
        if branch != self._sync.branch:
            receipt = await self._commit(select=branch)
            self._writer.moved_head()
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
        """Write a timeline and all that fork from it, each fork before what comes after it there.

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
        """Return the number of entries before a timeline; 0 if it has a branch already."""
        return timeline.shared if self._sync.place(timeline).branch is None else 0

    async def _write(self, timeline: Timeline, *, until: int) -> Receipt | None:
        """Write the new entries of a timeline on its branch, which may be new, too."""
        place, receipt = self._sync.place(timeline), None
        if place.branch is None and timeline.former is not None:
            receipt = await self._fork(timeline, timeline.former)
            place = self._sync.place(timeline)
        if place.branch is None:
            place.branch = self._sync.branch
        while place.written < until:
            moved = place.branch if place.branch != self._sync.branch else None
            entries = self._unconfirmed_only(timeline, self._new_entries(timeline, place.written, until))
            parcels = [
                parcel
                for number, one in enumerate(entries, start=place.written)
                if isinstance(one, Cut)
                for parcel in self._writer.eviction(
                    timeline.fold, one, Position(place.branch, timeline.first + number)
                )
            ]
            records = await self._writer.records(entries, timeline.model_before(place.written))
            receipt = await self._commit(timeline, records=records, select=moved, parcels=parcels)
            place.wrote(len(entries), receipt.head)
            self._sync.keep(timeline, place)
            if moved is None:
                self._writer.wrote(receipt, entries, records)
            else:
                self._writer.moved_head()
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

    async def _fork(self, timeline: Timeline, former: Timeline) -> Receipt:
        """Create the branch of a timeline after what it shares with the former one, with its first entries.

        The former timeline is the head before it: undo leads back there, and so does leaving a tangent.
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
        place = Place(receipt.branch, between(origin.path, 1, at.seq), shared)
        place.wrote(len(entries), receipt.head)
        self._sync.keep(timeline, place)
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
