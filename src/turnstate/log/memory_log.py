"""A log in memory, for a conversation without a store: branches of entries, with a head.

It answers the reads of operations from its lists and applies their effects. Branches and entries are numbered
as a store numbers them, so a log can be written to a store, branch by branch, and means the same there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..codec import kind_of
from ..entry import Answer, Entry
from ..message import Message
from ..stores.values import BranchRow, Fork, Position, Span
from .operations import Branches, Effect, Find, Here, Newest, Operation, Placed, Read, Slice, Steps
from .path import spans

T = TypeVar("T")


class MemoryLog:
    """The branches of one conversation, and the head."""

    def __init__(self, id: str) -> None:
        self.id = id
        root = BranchRow(id=1, parent=None, fork_seq=0, created=0, operation="create")
        self.branches = {1: root}
        self.entries: dict[int, list[Placed]] = {1: []}
        self._places = dict[str, Placed]()
        self.head = Position(1, 0)

    def operate(self, operation: Operation, *, now: int) -> Effect:
        """Run an operation and apply its effect."""
        while True:
            effect = self.run(operation(Here(self.id, self.head, now)))
            self.apply(effect, now=now)
            if not effect.again:
                return effect

    def run(self, steps: Steps[T]) -> T:
        """Answer the reads of an operation, and return what it returns."""
        answer: Any = None
        while True:
            try:
                answer = self.answer(steps.send(answer))
            except StopIteration as end:
                result: T = end.value
                return result

    def apply(self, effect: Effect, *, now: int = 0) -> None:
        """Create or select a branch, and add entries there."""
        if effect.fork is not None:
            self._fork(effect.fork, now)
        elif effect.select is not None:
            self.head = self.tip(effect.select)
        for entry in effect.entries:
            self.add(entry)

    def add(self, entry: Entry) -> Placed:
        """Add an entry at the head."""
        branch, seq = self.head.branch, self.head.seq + 1
        kind = kind_of(entry)
        shown = entry.message if isinstance(entry, Answer) else entry
        id = shown.id if isinstance(shown, Message) else f"{branch}.{seq}"
        placed = Placed(branch, seq, id, kind, entry)
        self.entries[branch].append(placed)
        self._places[id] = placed
        self.head = Position(branch, seq)
        return placed

    def tip(self, branch: int) -> Position:
        """Return the position of the last entry of a branch, or of the entry that it forked after."""
        row, own = self.branches[branch], self.entries[branch]
        return Position(branch, own[-1].seq if own else row.fork_seq)

    def path(self, head: Position | None = None) -> list[Span]:
        """Return the spans that lead to a head, newest first."""
        return spans(self.branches.values(), head or self.head)

    def read(self, span: Span) -> list[Placed]:
        """Return the entries of a span, in order."""
        first = self.branches[span.branch].fork_seq + 1
        return self.entries[span.branch][max(0, span.first - first) : max(0, span.last - first + 1)]

    def walk(self, path: Sequence[Span]) -> list[Placed]:
        """Return the entries of a path, in order."""
        return [one for span in reversed(path) for one in self.read(span)]

    def answer(self, read: Read) -> object:
        """Answer a read of an operation."""
        match read:
            case Branches():
                return list(self.branches.values())
            case Slice(span, limit, newest, kinds):
                found = [one for one in self.read(span) if kinds is None or one.kind in kinds]
                return found if limit is None else found[-limit:] if newest else found[:limit]
            case Newest(path, kinds):
                newest_of = dict[str, Placed]()
                for span in path:
                    for one in reversed(self.read(span)):
                        if one.kind in kinds:
                            newest_of.setdefault(one.kind, one)
                        if len(newest_of) == len(set(kinds)):
                            return newest_of
                return newest_of
            case Find(ids):
                return [self._places[id] for id in ids if id in self._places]

    def _fork(self, fork: Fork, now: int) -> None:
        made = BranchRow(
            id=len(self.branches) + 1,
            parent=fork.parent,
            fork_seq=fork.seq,
            created=now,
            name=fork.name,
            operation=fork.operation,
            former=self.head.branch,
        )
        self.graft(made)
        self.head = Position(made.id, made.fork_seq)

    def graft(self, branch: BranchRow) -> None:
        """Add a branch without entries; the head stays."""
        self.branches[branch.id] = branch
        self.entries[branch.id] = []
