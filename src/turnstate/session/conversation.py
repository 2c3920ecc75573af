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
from itertools import pairwise, takewhile

import msgspec

from .. import ids
from ..context.policy import Policy
from ..conversation import ConversationState, Os
from ..conversation import settings as kept_settings
from ..conversation.state import Doubt
from ..conversation.timeline import MAX_CONVERSATION_STATE_HISTORY_LEN, Timeline
from ..entry import Bootstrap, Checkpoint, Cut, Entry, Note, Prompt, Revert, Settings, Summary, Tangent
from ..errors import Conflict, InputError, SessionError
from ..log.outbox import Eviction
from ..log.path import between, spans
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
from .loading import entries_of, entry_of, messages_of, read_entry, rows_backwards, standing_cut
from .windows import WindowMaker
from .writer import SessionWriter

__all__ = ["RESTORE", "TANGENT", "Conversations", "Strands"]

# Strands of a log: its branches as a conversation sees them, the main one and its tangents.


TANGENT, RESTORE = "tangent", "restore"
DAMAGED = "[An entry that stood here is damaged; run `turnstate verify`.]"
END = 2**60

_RECALLED = ("prompt", "bootstrap", "settings", "checkpoint")


class Strands:
    """Loads the strands of one session."""

    def __init__(self, log: Log, at: Address, branches: Sequence[Branch]) -> None:
        self._log, self._at = log, at
        self._branches = {branch.id: branch for branch in branches}
        self._by_branch = dict[int, Timeline]()
        self.loaded = list[Timeline]()

    async def load(self, head: Position) -> Timeline:
        """Load the strand that ends at a head, the ones that it leads back to first."""
        aside = list[tuple[Position, Branch]]()
        place, tangent = head, self._tangent(head.branch)
        while tangent is not None and tangent.former is not None and place.branch not in self._by_branch:
            aside.append((place, tangent))
            place = await self._tip(tangent.former)
            tangent = self._tangent(place.branch)
        strand = self._by_branch.get(place.branch) or self._keep(await self._root(self._path(place)), place)
        for place, tangent in reversed(aside):
            strand = self._keep(await self._aside(self._path(place), tangent, strand), place)
        return strand

    def _path(self, head: Position) -> list[Span]:
        return spans(self._branches.values(), head)

    def _keep(self, strand: Timeline, head: Position) -> Timeline:
        strand.branch, strand.written = head.branch, len(strand.entries)
        self._by_branch[head.branch] = strand
        self.loaded.append(strand)
        return strand

    async def load_kept(self) -> None:
        """Load the tangents that were left and lead back to what is loaded."""
        known = {strand.name for strand in self.loaded}
        for branch in self._branches.values():
            main = self._by_branch.get(branch.former or 0)
            if branch.operation == TANGENT and branch.name not in known and main is not None:
                await self.load(await self._tip(self._left_on(branch, main)))

    def _left_on(self, tangent: Branch, main: Timeline) -> int:
        """Give the branch that a tangent was left on: its own, or one that a restore or a rewind made."""
        left = (
            entry.branch
            for entry in reversed(main.entries)
            if isinstance(entry, Tangent) and entry.name == tangent.name and entry.branch
        )
        return next((id for id in left if id in self._branches), tangent.id)

    def _tangent(self, id: int) -> Branch | None:
        """Give the tangent that a branch belongs to, if it does to one."""
        branch = self._branches.get(id)
        while branch is not None and branch.operation != TANGENT:
            branch = self._branches.get(branch.parent) if branch.parent is not None else None
        return branch

    async def _tip(self, id: int) -> Position:
        """Give the last entry of a branch, or the one that it began behind."""
        begun = self._branches[id].fork_seq
        rows = await self._log.read(self._at, Span(id, begun + 1, END), limit=1, newest=True)
        return Position(id, rows[0].seq if rows else begun)

    async def _aside(self, path: Sequence[Span], tangent: Branch, parent: Timeline) -> Timeline:
        """Load a tangent on top of its parent; alone, where the parent does not reach its beginning."""
        begun = tangent.fork_seq
        entries = begun - parent.first + 1
        at_same_place = between(path, begun, begun) == between(parent.path, begun, begun)
        if 0 <= entries <= len(parent.entries) and (at_same_place or begun == 0):
            strand = parent.fork(name=tangent.name, at=entries)
            for span in reversed(between(path, begun + 1, END)):
                await _extend(strand, await self._log.read(self._at, span))
        else:
            strand = await self._root(path)
            strand.parent, strand.name = parent, tangent.name
        strand.path = list(path)
        return strand

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
        strand = Timeline(first=rows[0].seq if rows else 1)
        strand.path = list(path)
        await self._recall(strand, path, rows)
        await _extend(strand, rows)
        return strand

    async def _recall(self, strand: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in what was said before the part that is loaded, and still counts."""
        earlier = between(path, 1, strand.first - 1)
        if not earlier:
            return
        marks = await self._log.newest(self._at, earlier, _RECALLED)
        for entry in await entries_of([marks[kind] for kind in _RECALLED if kind in marks]):
            if isinstance(entry, Prompt | Bootstrap | Settings | Checkpoint):
                strand.recall(entry)
        await self._recall_cuts(strand, path, rows)

    async def _recall_cuts(self, strand: Timeline, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the cut that held before the part that is loaded, and those that reverts in it lead to."""
        earlier = between(path, 1, strand.first - 1)
        entries = await entries_of([row for row in rows if row.kind == "revert"])
        reverts = [entry for entry in entries if isinstance(entry, Revert)]
        standing = await standing_cut(self._log, self._at, earlier)
        numbers = {entry.former for entry in reverts if 0 < entry.former < strand.first}
        places = sorted(numbers | ({standing.seq} if standing else set()))
        for number, end in pairwise([*places, strand.first]):
            for row in await self._log.read(self._at, between(path, number, number)[0]):
                await self._recall_cut(strand, row, between(path, number, end - 1))

    async def _recall_cut(self, strand: Timeline, row: Row, since: Sequence[Span]) -> None:
        cut = await read_entry(row)
        if not isinstance(cut, Cut):
            return
        strand.recall(cut, at=row.seq)
        found = (await self._log.newest(self._at, since, ("summary",))).get("summary")
        summary = await read_entry(found) if found else None
        if isinstance(summary, Summary) and summary.cut == cut.id:
            strand.recall(summary)


def _turn_edge(backwards: Sequence[str]) -> int:
    """Count the rows down to the first turn that is whole; all of them, where none begins in there.

    The rows are given by the roles of their messages, the newest first; a row that is none has no role.
    """
    answered = True  # what was read before ends behind an answer
    for place in range(len(backwards) - 1, -1, -1):
        role = backwards[place]
        if answered and role == "user":
            return place + 1
        answered = role == "assistant" if role else answered
    return len(backwards)


async def _extend(strand: Timeline, rows: Sequence[Row]) -> None:
    """Fold rows into a strand that nobody else has yet; the loop goes on while they are many."""
    large = sum(len(row.body) for row in rows) > INLINE
    await off_loop(lambda: strand.extend(entry_of(row) or Note(DAMAGED) for row in rows), large=large)


class Conversations:
    """Loads and writes the states of one session."""

    def __init__(self, scribe: SessionWriter, windows: WindowMaker) -> None:
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

    async def _settle(self, first: Timeline, state: ConversationState) -> Receipt | None:
        """Write a strand and all that goes on from it, fork after fork, each before what is said behind it.

        So what a tangent said is there before anybody reads that it was left.
        """
        receipt: Receipt | None = None
        waiting: list[tuple[Timeline, int | None]] = [(first, None)]
        while waiting:
            strand, until = waiting.pop()
            if until is not None:
                receipt = await self._write(strand, state, until=until) or receipt
                continue
            forks = sorted((one for one in state.strands if one.source is strand), key=_begun)
            steps = [step for one in forks for step in ((strand, _begun(one)), (one, None))]
            waiting += reversed([*steps, (strand, len(strand.entries))])
        return receipt

    async def _write(self, strand: Timeline, state: ConversationState, *, until: int) -> Receipt | None:
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

    async def _fork(self, strand: Timeline, source: Timeline, state: ConversationState) -> Receipt:
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

    def _parcel(self, strand: Timeline, cut: Cut, place: int) -> Parcel:
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
        strand: Timeline | None = None,
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


def _begun(strand: Timeline) -> int:
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


def _undoubted(state: ConversationState, strand: Timeline, entries: list[Entry]) -> list[Entry]:
    """Give no more than was in a write that may have been done: it is given again as it was."""
    doubt = state.doubt
    return entries[: doubt.count] if doubt is not None and doubt.strand is strand else entries
