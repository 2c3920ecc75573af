"""Conversations of a session: the log loaded as a state, and what a state has to say written into the log.

Loading reads back from the head until the live history is full, and the strands that tangents return
to. Writing goes strand by strand, parents first: a strand that the log does not know becomes a branch,
and at the end the head is where the state is. What one strand says in one go is one write, all or
nothing; a process that dies between two of them leaves a conversation that is sound and can be opened.
A state that somebody else has overtaken is refused with `Conflict`, and nothing of it is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation import settings as kept_settings
from ..conversation.strand import Strand
from ..decision import Cut
from ..errors import Conflict, InputError
from ..stores.values import Fork, Parcel, Position, Receipt, Record, SessionRow
from .parcels import Eviction
from .path import between
from .scribe import Scribe
from .strands import RESTORE, TANGENT, Strands
from .windows import Windows

__all__ = ["Conversations"]


class Conversations:
    """Loads and writes the states of one session."""

    def __init__(self, scribe: Scribe, windows: Windows) -> None:
        self._scribe, self._windows = scribe, windows

    async def load(self, *, os: Os | None, policy: Policy) -> ConversationState:
        """Load the conversation as it is now, with its tangents."""
        row = await self._scribe.refresh()
        branches = await self._scribe.store.branches(self._scribe.at)
        strands = Strands(self._scribe.store, self._scribe.at, branches)
        state = ConversationState(row.id, os=os, policy=policy)
        state.head = await strands.load(row.head)
        await strands.load_kept()
        state.strands, state.seen = strands.loaded, row.head
        if state.head.settings is not None:
            kept_settings.restore(state, state.head.settings.fields)
        return state

    async def commit(self, state: ConversationState) -> Receipt | None:
        """Write what a state has to say that the log does not hold; None where that is nothing."""
        state.note_settings()
        row = await self._scribe.refresh()
        self._check(state, row)
        receipt: Receipt | None = None
        for strand in state.strands:
            if strand.branch is None or strand.written < len(strand.entries):
                receipt = await self._write(strand, state)
        if state.head.branch != _seen(state).branch:
            receipt = await self._commit(state, select=state.head.branch)
            self._windows.forget()
        return receipt

    def _check(self, state: ConversationState, row: SessionRow) -> None:
        if state.conversation_id != row.id:
            raise InputError(f"conversation {state.conversation_id:.80} is not that of session {row.id}")
        if state.seen is None and row.seq:
            raise InputError(
                f"session {row.id} has a conversation already; load it with session.conversation()"
            )
        state.seen = state.seen or row.head
        if state.seen != row.head:
            raise Conflict(
                f"session {row.id} moved on since this state was loaded; load it again",
                version=row.version,
                head=row.head,
            )

    async def _write(self, strand: Strand, state: ConversationState) -> Receipt:
        """Write the entries of a strand that are new, on its branch, which may be new, too."""
        if strand.branch is None and strand.restores is not None:
            return await self._go_back(strand, strand.restores, state)
        if strand.branch is None and strand.parent is not None:
            return await self._branch_off(strand, strand.parent, state)
        if strand.branch is None:
            strand.branch = _seen(state).branch
        moved = strand.branch if strand.branch != _seen(state).branch else None
        entries = strand.entries[strand.written :]
        parcels = [
            self._parcel(strand, one, place)
            for place, one in enumerate(entries, start=strand.written)
            if isinstance(one, Cut) and one.asked.get("operation") != "clear" and one.covers[1]
        ]
        records = await self._scribe.records(entries)
        receipt = await self._commit(state, records=records, select=moved, parcels=parcels)
        strand.wrote(len(entries), receipt.head)
        if moved is None:
            self._windows.grow(receipt, entries, records)
        else:
            self._windows.forget()
        return receipt

    async def _branch_off(self, strand: Strand, parent: Strand, state: ConversationState) -> Receipt:
        """Begin a tangent's branch with what it says; its parent is the head before it."""
        if parent.branch != _seen(state).branch:
            await self._commit(state, select=parent.branch)
        return await self._fork(strand, parent, state, strand.forked_at, operation=TANGENT)

    async def _go_back(self, strand: Strand, left: Strand, state: ConversationState) -> Receipt:
        """Begin the branch of a restored moment; what was left is the head before it, so it can be undone."""
        if left.branch != _seen(state).branch:
            await self._commit(state, select=left.branch)
        return await self._fork(strand, left, state, strand.shared, operation=RESTORE)

    async def _fork(
        self, strand: Strand, source: Strand, state: ConversationState, shared: int, *, operation: str
    ) -> Receipt:
        """Make a strand's branch behind what it shares with its source, with what it says beyond that."""
        place = source.place(strand.first - 1 + shared)
        name = strand.name if operation == TANGENT else ""
        fork = Fork(parent=place.branch, seq=place.seq, name=name, operation=operation)
        strand.written = shared
        entries = list(takewhile(lambda entry: not isinstance(entry, Cut), strand.entries[shared:]))
        records = await self._scribe.records(entries)
        receipt = await self._commit(state, records=records, fork=fork)
        strand.branch, strand.path = receipt.branch, between(source.path, 1, place.seq)
        strand.wrote(len(entries), receipt.head)
        self._windows.forget()
        if strand.written < len(strand.entries):  # a cut's parcel names the branch, which has a number now
            return await self._write(strand, state)
        return receipt

    def _parcel(self, strand: Strand, cut: Cut, place: int) -> Parcel:
        """Say which messages leave with a cut, for the memory engine."""
        eviction = Eviction(
            epoch=self._scribe.epoch,
            branch=strand.branch or 0,
            seq=strand.first + place,
            cut=cut.id,
            first=strand.kept_before(cut),
            last=cut.covers[1],
            summary=cut.summary,
        )
        return eviction.parcel(self._scribe.at, due=self._scribe.clock())

    async def _commit(
        self,
        state: ConversationState,
        *,
        records: Sequence[Record] = (),
        fork: Fork | None = None,
        select: int | None = None,
        parcels: Sequence[Parcel] = (),
    ) -> Receipt:
        receipt = await self._scribe.commit(
            records=records, fork=fork, select=select, parcels=parcels, expected_head=_seen(state)
        )
        state.seen = receipt.head
        return receipt


def _seen(state: ConversationState) -> Position:
    return state.seen or Position(1, 0)
