"""The tree of a session: its branches, and what happened on each of them.

A branch begins where its parent was forked, rewound, restored or left for a tangent. Its *marks* are the
entries that changed what the conversation consists of: cuts and their reverts, checkpoints, restores and
tangents. Sequence numbers continue across a fork, so they order both marks and branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from ..entry import Checkpoint, Cut, Entry, Restore, Revert, Tangent
from ..log.path import entry_of, message_of, rows_forwards, spans
from ..plain_text import first_words
from ..stores.port import Log
from ..stores.values import MESSAGE, BranchRow, Row, SessionRow, Span
from .entry_lines import cut_reason, described

END = (1 << 31) - 1
"""A sequence number that no entry reaches, on any store."""

MARKED = ("cut", "compaction", "revert", "checkpoint", "restore", "tangent")
"""The kinds of rows that are marks."""


class Mark(Struct, frozen=True, kw_only=True):
    """An event on a branch: its sequence number, time, kind and description.

    ``at`` is the time of the newest message before it, as text; empty if there is none.
    """

    seq: int
    at: str
    what: str
    text: str


class TreeBranch(Struct, frozen=True, kw_only=True):
    """One branch: where it begins, what created it, how much is on it, and its marks.

    ``upto`` is the last sequence number of the branch that is on the path to the head; 0 if none is.
    """

    id: int
    parent: int | None
    after: int
    operation: str
    name: str
    created: int
    messages: int
    last: int
    first_words: str
    first_at: str
    last_at: str
    upto: int
    marks: tuple[Mark, ...]


class Tree(Struct, frozen=True, kw_only=True):
    """All branches of a session in the order of their creation, and its head."""

    session: str
    title: str
    branch: int
    seq: int
    branches: tuple[TreeBranch, ...]

    @property
    def messages(self) -> int:
        """The number of messages on all branches."""
        return sum(branch.messages for branch in self.branches)

    def children(self, id: int | None) -> list[TreeBranch]:
        """Return the branches that begin on a branch, or the roots for None."""
        return [branch for branch in self.branches if branch.parent == id]

    def to_json(self) -> dict[str, Any]:
        """Return the tree as plain JSON."""
        fields: dict[str, Any] = to_builtins(self)
        return fields


async def read_tree(log: Log, row: SessionRow) -> Tree:
    """Read all branches of a session."""
    reader = TreeReader(row, await log.branches(row.address))
    for branch in reader.branches:
        async for one in rows_forwards(log, row.address, [own_span(branch)]):
            reader.add(one)
    return reader.tree()


def own_span(branch: BranchRow) -> Span:
    """Return the span of all entries of the branch itself, without those of its parents."""
    return Span(branch.id, branch.fork_seq + 1, END)


class TreeReader:
    """Builds the tree of a session from the rows of its branches."""

    def __init__(self, row: SessionRow, branches: Sequence[BranchRow]) -> None:
        self.branches = branches
        self._row = row
        self._outlines = {branch.id: _Outline() for branch in branches}

    def add(self, row: Row) -> None:
        """Add the next row of a branch."""
        self._outlines[row.branch].add(row)

    def tree(self) -> Tree:
        """Return the tree of all rows that were added."""
        row, upto = self._row, {span.branch: span.last for span in spans(self.branches, self._row.head)}
        found = [self._outlines[one.id].branch(one, upto.get(one.id, 0)) for one in self.branches]
        return Tree(session=row.id, title=row.title, branch=row.branch, seq=row.seq, branches=tuple(found))


class _Outline:
    """What is shown of a branch; decodes only marks, and messages whose words or time are shown."""

    def __init__(self) -> None:
        self._messages = self._last = 0
        self._first: Row | None = None  # the first message of the user, else the first message
        self._asked = False
        self._newest: Row | None = None
        self._marks = list[tuple[Row, Entry, Row | None]]()

    def add(self, row: Row) -> None:
        """Add the next row."""
        self._last = row.seq
        if row.kind == MESSAGE:
            self._messages += 1
            self._newest = row
            if not self._asked:
                message = message_of(row)
                self._asked = message is not None and message.role == "user"
                self._first = row if self._asked or self._first is None else self._first
        elif row.kind in MARKED:
            entry = entry_of(row)
            begins = isinstance(entry, Tangent) and entry.started  # the branch itself already says so
            if entry is not None and not begins:
                self._marks.append((row, entry, self._newest))

    def branch(self, branch: BranchRow, upto: int) -> TreeBranch:
        """Return the branch with what the added rows show."""
        first = message_of(self._first) if self._first else None
        return TreeBranch(
            id=branch.id,
            parent=branch.parent,
            after=branch.fork_seq,
            operation=branch.operation,
            name=branch.name,
            created=branch.created,
            messages=self._messages,
            last=self._last or branch.fork_seq,
            first_words=first_words(first.text) if first else "",
            first_at=first.timestamp if first else "",
            last_at=_time(self._newest),
            upto=upto,
            marks=tuple(_mark(*one) for one in self._marks),
        )


def _mark(row: Row, entry: Entry, before: Row | None) -> Mark:
    match entry:
        case Cut(asked=asked):
            what, text = (
                str(asked.get("operation", "cut")),
                f"{cut_reason(entry)}: {first_words(entry.summary)}",
            )
        case Revert(at=at):
            what, text = "undo", f"the cut at {at:,} no longer holds"
        case Checkpoint(label=label, description=description):
            what, text = "checkpoint", f"{label} {first_words(description)}"
        case Restore():
            what, text = "restore", described(entry)
        case Tangent(undone=undone):
            what, text = "tangent", "resumed" if undone else "left"
        case _:
            what, text = row.kind, described(entry)
    return Mark(seq=row.seq, at=_time(before), what=what, text=text.rstrip(": "))


def _time(row: Row | None) -> str:
    message = message_of(row) if row else None
    return message.timestamp if message else ""
