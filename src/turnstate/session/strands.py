"""Strands of a log: its branches as a conversation sees them, the main one and its tangents.

A branch that a rewind or a fork made is a part of the path like any other; one that a tangent made
begins a strand, whose parent is what was the head before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..conversation.strand import MAX_CONVERSATION_STATE_HISTORY_LEN, Strand
from ..decision import Cut, Revert, Summary
from ..entry import Bootstrap, Checkpoint, Note, Prompt, Settings, Tangent
from ..stores.port import Log
from ..stores.values import Address, Branch, Position, Row, Span
from ..tokens.background import INLINE, off_loop
from .loading import entry_of, message_of, messages_of, rows_backwards, standing_cut
from .path import between, spans

__all__ = ["RESTORE", "TANGENT", "Strands"]

TANGENT, RESTORE = "tangent", "restore"
DAMAGED = "[An entry that stood here is damaged; run `turnstate verify`.]"
END = 2**60

_RECALLED = ("prompt", "bootstrap", "settings", "checkpoint")


class Strands:
    """Loads the strands of one session."""

    def __init__(self, log: Log, at: Address, branches: Sequence[Branch]) -> None:
        self._log, self._at = log, at
        self._branches = {branch.id: branch for branch in branches}
        self._by_branch = dict[int, Strand]()
        self.loaded = list[Strand]()

    async def load(self, head: Position) -> Strand:
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

    def _keep(self, strand: Strand, head: Position) -> Strand:
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

    def _left_on(self, tangent: Branch, main: Strand) -> int:
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

    async def _aside(self, path: Sequence[Span], tangent: Branch, parent: Strand) -> Strand:
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

    async def _root(self, path: Sequence[Span]) -> Strand:
        rows, exchanges, enough = list[Row](), 0, MAX_CONVERSATION_STATE_HISTORY_LEN
        async for row in rows_backwards(self._log, self._at, path):
            exchanges += any(message.role == "assistant" for message in await messages_of([row]))
            if exchanges > enough:
                rows = rows[: _turn_edge(rows)]
                break
            rows.append(row)
        rows.reverse()
        strand = Strand(first=rows[0].seq if rows else 1)
        strand.path = list(path)
        await self._recall(strand, path, rows)
        await _extend(strand, rows)
        return strand

    async def _recall(self, strand: Strand, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in what was said before the part that is loaded, and still counts."""
        earlier = between(path, 1, strand.first - 1)
        if not earlier:
            return
        marks = await self._log.newest(self._at, earlier, _RECALLED)
        for entry in (entry_of(marks[kind]) for kind in _RECALLED if kind in marks):
            if isinstance(entry, Prompt | Bootstrap | Settings | Checkpoint):
                strand.recall(entry)
        await self._recall_cuts(strand, path, rows)

    async def _recall_cuts(self, strand: Strand, path: Sequence[Span], rows: Sequence[Row]) -> None:
        """Take in the cut that held before the part that is loaded, and those that reverts in it lead to."""
        earlier = between(path, 1, strand.first - 1)
        reverts = [entry for row in rows if isinstance(entry := entry_of(row), Revert)]
        standing = await standing_cut(self._log, self._at, earlier)
        numbers = {entry.former for entry in reverts if 0 < entry.former < strand.first}
        places = sorted(numbers | ({standing.seq} if standing else set()))
        for number, end in pairwise([*places, strand.first]):
            for row in await self._log.read(self._at, between(path, number, number)[0]):
                await self._recall_cut(strand, row, between(path, number, end - 1))

    async def _recall_cut(self, strand: Strand, row: Row, since: Sequence[Span]) -> None:
        cut = entry_of(row)
        if not isinstance(cut, Cut):
            return
        strand.recall(cut, at=row.seq)
        found = (await self._log.newest(self._at, since, ("summary",))).get("summary")
        summary = entry_of(found) if found else None
        if isinstance(summary, Summary) and summary.cut == cut.id:
            strand.recall(summary)


def _turn_edge(backwards: Sequence[Row]) -> int:
    """Count the rows down to the first turn that is whole; all of them, where none begins in there."""
    answered = True  # what was read before ends behind an answer
    for place in range(len(backwards) - 1, -1, -1):
        message = message_of(backwards[place])
        if message is not None and answered and message.role == "user":
            return place + 1
        answered = message.role == "assistant" if message is not None else answered
    return len(backwards)


async def _extend(strand: Strand, rows: Sequence[Row]) -> None:
    """Fold rows into a strand that nobody else has yet; the loop goes on while they are many."""
    large = sum(len(row.body) for row in rows) > INLINE
    await off_loop(lambda: strand.extend(entry_of(row) or Note(DAMAGED) for row in rows), large=large)
