"""Conversations of a session: the log loaded as a state, and what a state has to say written into the log.

Loading reads back from the head until the live history is full, and the strands that tangents return
to. Writing goes strand by strand, parents first: a strand that the log does not know becomes a branch,
and at the end the head is where the state is. What one strand says in one go is one write, all or
nothing; a process that dies between two of them leaves a conversation that is sound and can be opened.
A state that somebody else has overtaken is refused with `Conflict`, and nothing of it is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from .. import ids
from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation import settings as kept_settings
from ..conversation.state import Doubt
from ..conversation.strand import Strand
from ..decision import Cut
from ..entry import Entry, Tangent
from ..errors import Conflict, InputError, SessionError
from ..message import Message
from ..stores.values import Fork, Key, Parcel, Position, Receipt, Record, SessionRow
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
        self._writing = asyncio.Lock()

    async def load(self, *, os: Os | None, policy: Policy) -> ConversationState:
        """Load the conversation as it is now, with its tangents."""
        row = await self._scribe.refresh()
        branches = await self._scribe.log.branches(self._scribe.at)
        strands = Strands(self._scribe.log, self._scribe.at, branches)
        state = ConversationState(row.id, os=os, policy=policy)
        state.head = await strands.load(row.head)
        await strands.load_kept()
        state.strands, state.seen, state.version = strands.loaded, row.head, row.version
        if state.head.settings is not None:
            kept_settings.restore(state, state.head.settings.fields)
        state.file_line_tracker = dict(state.head.trackers)
        return state

    async def commit(self, state: ConversationState) -> Receipt | None:
        """Write what a state has to say that the log does not hold; None where that is nothing."""
        async with self._writing:  # tasks that share a state write one after the other
            return await self._write_all(state)

    async def _write_all(self, state: ConversationState) -> Receipt | None:
        state.note_settings()
        row = await self._scribe.refresh()
        self._check(state, row)
        receipt: Receipt | None = None
        for strand in state.strands:
            if strand.source is None:
                receipt = await self._settle(strand, state) or receipt
        if state.head.branch != _seen(state).branch:
            receipt = await self._commit(state, select=state.head.branch)
            self._windows.forget()
        return receipt

    def _check(self, state: ConversationState, row: SessionRow) -> None:
        if state.conversation_id != row.id:
            raise InputError(f"conversation {state.conversation_id:.80} is not that of session {row.id}")
        if state.seen is None and row.seq and state.doubt is None:
            raise InputError(
                f"session {row.id} has a conversation already; load it with session.conversation()"
            )
        state.seen = state.seen or (Position(1, 0) if state.doubt else row.head)
        state.version = row.version if state.version is None else state.version
        if (state.seen, state.version) != (row.head, row.version) and state.doubt is None:
            raise Conflict(
                f"session {row.id} moved on since this state was loaded; load it again",
                version=row.version,
                head=row.head,
            )

    async def _settle(self, first: Strand, state: ConversationState) -> Receipt | None:
        """Write a strand and all that goes on from it, fork after fork, each before what is said behind it.

        So what a tangent said is there before anybody reads that it was left.
        """
        receipt: Receipt | None = None
        waiting: list[tuple[Strand, int | None]] = [(first, None)]
        while waiting:
            strand, until = waiting.pop()
            if until is not None:
                receipt = await self._write(strand, state, until=until) or receipt
                continue
            forks = sorted((one for one in state.strands if one.source is strand), key=_begun)
            steps = [step for one in forks for step in ((strand, _begun(one)), (one, None))]
            waiting += reversed([*steps, (strand, len(strand.entries))])
        return receipt

    async def _write(self, strand: Strand, state: ConversationState, *, until: int) -> Receipt | None:
        """Write the entries of a strand that are new, on its branch, which may be new, too."""
        receipt: Receipt | None = None
        if strand.branch is None and strand.source is not None:
            receipt = await self._fork(strand, strand.source, state)
        if strand.branch is None:
            strand.branch = _seen(state).branch
        if strand.written >= until:
            return receipt
        moved = strand.branch if strand.branch != _seen(state).branch else None
        told = _undoubted(state, strand, strand.told(until))
        entries = [entry.owned() if isinstance(entry, Message) else entry for entry in told]
        parcels = [
            self._parcel(strand, one, place)
            for place, one in enumerate(entries, start=strand.written)
            if isinstance(one, Cut) and one.asked.get("operation") != "clear" and one.covers[1]
        ]
        records = await self._scribe.records(entries)
        receipt = await self._commit(state, strand=strand, records=records, select=moved, parcels=parcels)
        strand.wrote(len(entries), receipt.head)
        if moved is None:
            self._windows.grow(receipt, entries, records)
        else:
            self._windows.forget()
        return await self._write(strand, state, until=until) or receipt

    async def _fork(self, strand: Strand, source: Strand, state: ConversationState) -> Receipt:
        """Begin a strand's branch behind what it shares with its source, with what it says at first.

        The source is the head before it: that is where a tangent leads back to, and how a restore is undone.
        """
        if source.branch != _seen(state).branch:
            await self._commit(state, select=source.branch)
        shared = strand.shared_with_source
        operation = TANGENT if strand.restores is None else RESTORE
        place = source.place(strand.first - 1 + shared)
        name = strand.name if operation == TANGENT else ""
        fork = Fork(parent=place.branch, seq=place.seq, name=name, operation=operation)
        strand.written = shared
        entries = _undoubted(state, strand, list(takewhile(_needs_no_branch, strand.entries[shared:])))
        records = await self._scribe.records(entries)
        receipt = await self._commit(state, strand=strand, records=records, fork=fork)
        strand.branch, strand.path = receipt.branch, between(source.path, 1, place.seq)
        strand.wrote(len(entries), receipt.head)
        self._windows.forget()
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
        strand: Strand | None = None,
        records: Sequence[Record] = (),
        fork: Fork | None = None,
        select: int | None = None,
        parcels: Sequence[Parcel] = (),
    ) -> Receipt:
        """Write once, also if the reply is lost and the same state is committed again."""
        head, digest = _seen(state), _digest(records, fork, select)
        key = Key(str(ids.message_id()), digest)
        if state.doubt is not None and state.doubt.digest == digest:
            key = Key(state.doubt.key, digest)
        try:
            receipt = await self._scribe.commit(
                records=records,
                fork=fork,
                select=select,
                parcels=parcels,
                expected_head=head,
                expected_version=state.version,
                key=key,
            )
        except SessionError:
            state.doubt = None  # it was refused
            raise
        except BaseException:
            count = len(records) if strand is not None else 0
            state.doubt = Doubt(key=key.name, digest=digest, strand=strand, count=count)
            raise
        state.seen, state.version, state.doubt = receipt.head, receipt.version, None
        return receipt


def _seen(state: ConversationState) -> Position:
    return state.seen or Position(1, 0)


def _begun(strand: Strand) -> int:
    """Give the number of entries behind which a strand leaves its source; none, where it did already."""
    return strand.shared_with_source if strand.branch is None else 0


def _needs_no_branch(entry: Entry) -> bool:
    """Tell an entry that can be written with its branch from one that names the branch's number."""
    return not isinstance(entry, Cut | Tangent) or (isinstance(entry, Tangent) and bool(entry.started))


def _digest(records: Sequence[Record], fork: Fork | None, select: int | None) -> bytes:
    """Tell one write from another by what it says."""
    summed = hashlib.blake2b(msgspec.json.encode((fork, select)), digest_size=16)
    for record in records:
        summed.update(len(record.body).to_bytes(8, "big") + record.body)
    return summed.digest()


def _undoubted(state: ConversationState, strand: Strand, entries: list[Entry]) -> list[Entry]:
    """Give no more than was in a write that may have been done: it is given again as it was."""
    doubt = state.doubt
    return entries[: doubt.count] if doubt is not None and doubt.strand is strand else entries
