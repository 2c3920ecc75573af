"""The branches of a session: each comes from a place that is there, and the head is the tip of one.

Nothing sums up a branch, but its entries bear witness: the first one stands behind the fork, and its
running total goes on from the total there. So a branch that is gone, or whose row was changed, is made
again from what its entries say; where even they do not tell, it becomes a root, and what stood before
it is lost. The head is where number and total agree.
"""

from __future__ import annotations

from typing import Any

import apsw

from ..queries import query
from .entries import Stretch
from .inspection import Inspection

__all__ = ["Lineage", "inspect_head", "inspect_lineage"]

MOST_LOST = 100_000
"""Entries that a session may claim to have behind its last one: a number above is a damaged number."""


class _Line:
    """A branch: what its row says, and what its entries say."""

    __slots__ = ("base", "expected", "first", "fork", "former", "id", "kept", "parent", "tip", "total")

    def __init__(self, id: int, row: tuple[int | None, int, int | None] | None) -> None:
        self.id, self.kept = id, row is not None
        self.parent, self.fork, self.former = row or (None, 0, None)
        self.first: int | None = None  # its first entry, and the total before that one
        self.base = 0
        self.tip, self.total = self.fork, 0  # its last entry, and the total there
        self.expected = 0  # the last one that it must have, since others build on it


class Lineage:
    """The branches of a session by their ids."""

    def __init__(self, session: int, lines: dict[int, _Line], head: tuple[int, int, int]) -> None:
        self.session, self.lines = session, lines
        self.head_branch, self.head_seq, self.head_total = head

    @classmethod
    def read(cls, db: apsw.Connection, session: int) -> Lineage:
        """Read what rows and entries say."""
        which = {"key": session}
        rows = {id: tuple(rest) for id, *rest in db.execute(query("branch_rows"), which)}
        ids = set(rows) | set(_branches_with_entries(db, session))
        ((branch, seq, total),) = db.execute(query("head"), which)
        lineage = cls(session, {id: _Line(id, rows.get(id)) for id in sorted(ids)}, (branch, seq, total))
        for line in lineage.lines.values():
            lineage._ask_entries(db, line)
        return lineage

    def stretch(self, db: apsw.Connection, branch: int) -> Stretch:
        """Give the way along a branch, from its fork to its tip."""
        line = self.lines[branch]
        return Stretch(
            session=self.session,
            branch=branch,
            seq=line.fork,
            total=self.total_at(db, line.parent, line.fork),
            tip=line.tip,
            expected=line.expected,
            claimed=self.head_total if branch == self.head_branch else None,
        )

    def total_at(self, db: apsw.Connection, branch: int | None, seq: int) -> int | None:
        """Give the total at a place of a path; nothing where nothing stands there."""
        while branch is not None and seq > 0:
            line = self.lines.get(branch)
            if line is None:
                return None
            if seq > line.fork:
                which = {"key": self.session, "branch": branch, "seq": seq}
                return next((int(total) for (total,) in db.execute(query("total"), which)), None)
            branch = line.parent if line.parent is None or line.parent < line.id else 0
        return 0 if seq == 0 else None

    def end(self, db: apsw.Connection, line: _Line) -> tuple[int, int | None]:
        """Give the last place of a branch, and the total there."""
        if line.tip > line.fork:
            return line.tip, line.total
        return line.fork, self.total_at(db, line.parent, line.fork)

    def _ask_entries(self, db: apsw.Connection, line: _Line) -> None:
        which = {"key": self.session, "branch": line.id}
        for seq, tokens, total in db.execute(query("first_entry"), which):
            line.first, line.base = seq, total - tokens
        for seq, total in db.execute(query("last_entry"), which):
            line.tip, line.total = seq, total


def inspect_lineage(case: Inspection, session: int) -> Lineage:
    """Check where every branch comes from, and give the branches as they should be."""
    lineage = Lineage.read(case.db, session)
    if not lineage.lines:
        _add_root(case, lineage)
    for line in lineage.lines.values():
        _inspect_origin(case, lineage, line)
        _inspect_former(case, lineage, line)
    for line in lineage.lines.values():
        above = lineage.lines.get(line.parent) if line.parent is not None else None
        if above is not None and line.first is not None:
            above.expected = max(above.expected, line.fork)
    _believe_head(case.db, lineage)
    return lineage


def inspect_head(case: Inspection, session: int) -> None:
    """Check that the head is the tip of its branch, with the total of that."""
    lineage = Lineage.read(case.db, session)
    claimed = (lineage.head_seq, lineage.head_total)
    own = lineage.lines.get(lineage.head_branch)
    if not lineage.lines or (own and lineage.end(case.db, own) == claimed):
        return
    ends = {line.id: lineage.end(case.db, line) for line in lineage.lines.values()}
    branch, (seq, total) = _truth(lineage.head_branch, claimed, ends)
    fault = (
        f"its head is entry {claimed[0]} of branch {lineage.head_branch} at {claimed[1]} tokens, "
        f"which is not the last entry there"
    )
    done = f"it is entry {seq} of branch {branch} at {total} tokens"
    if case.found(fault, done=done, branch=lineage.head_branch, seq=claimed[0]):
        columns = {"key": session, "branch": branch, "seq": seq, "total": total or 0}
        case.db.execute(query("set_head"), columns)


def _truth(
    branch: int, claimed: tuple[int, int], ends: dict[int, tuple[int, int | None]]
) -> tuple[int, tuple[int, int | None]]:
    """Choose the branch whose end is just what the head claims, or its own, or the newest."""
    same = [id for id, end in ends.items() if end == claimed]
    chosen = same[0] if len(same) == 1 else branch if branch in ends else max(ends)
    return chosen, ends[chosen]


def _believe_head(db: apsw.Connection, lineage: Lineage) -> None:
    """Expect the entries that the session says it has behind the last one, if that may be so."""
    line = lineage.lines.get(lineage.head_branch)
    if line is None or not line.tip < lineage.head_seq <= line.tip + MOST_LOST:
        return
    claimed = (lineage.head_seq, lineage.head_total)
    elsewhere = any(lineage.end(db, other) == claimed for other in lineage.lines.values())
    if not elsewhere and lineage.head_total > (lineage.end(db, line)[1] or 0):
        line.expected = lineage.head_seq


def _inspect_origin(case: Inspection, lineage: Lineage, line: _Line) -> None:
    parent, fork = _origin(case.db, lineage, line)
    columns = {"key": lineage.session, "id": line.id, "parent": parent, "fork_seq": fork}
    told = f"behind entry {fork} of branch {parent}" if parent is not None else "as a root"
    if not line.kept:
        if case.found(f"branch {line.id} has entries and no row", done=f"made {told}", branch=line.id):
            former = None if line.id == 1 else parent or 1
            made = {"created": 0, "name": "", "operation": "repair", "former": former}
            case.db.execute(query("add_branch"), columns | made)
    elif (parent, fork) != (line.parent, line.fork):
        fault = f"branch {line.id} forks behind entry {line.fork} of branch {line.parent}, which cannot be"
        if case.found(fault, done=f"set {told}", branch=line.id):
            case.db.execute(query("set_origin"), columns)
    line.parent, line.fork, line.tip = parent, fork, max(line.tip, fork) if line.first else fork


def _origin(db: apsw.Connection, lineage: Lineage, line: _Line) -> tuple[int | None, int]:
    """Say where a branch comes from: as its row says, if that can be, else as its entries tell."""
    parent = lineage.lines.get(line.parent) if line.parent and line.parent < line.id else None
    rooted = line.kept and line.parent is None and line.fork == 0
    first, base = line.first, line.base
    if first is None and parent is None and not rooted and line.id == lineage.head_branch:
        first, base = lineage.head_seq + 1, lineage.head_total  # nothing was said on it: the head tells
    if first is None:
        return (parent.id, max(0, min(line.fork, parent.tip))) if parent else (None, 0)
    if rooted and first == 1:
        return None, 0
    fork = line.fork if line.kept and 0 <= line.fork < first else first - 1
    if parent and lineage.total_at(db, parent.id, fork) == base:
        return parent.id, fork
    if owner := _owner(db, lineage, line.id, first - 1, base):
        return owner, first - 1
    return (parent.id, fork) if parent else (None, 0)


def _owner(db: apsw.Connection, lineage: Lineage, branch: int, seq: int, total: int) -> int | None:
    """Find the one earlier branch that has an entry of that number with that total."""
    earlier = [line for line in lineage.lines.values() if line.id < branch and line.fork < seq <= line.tip]
    fitting = [line.id for line in earlier if lineage.total_at(db, line.id, seq) == total]
    return fitting[0] if len(fitting) == 1 else None


def _inspect_former(case: Inspection, lineage: Lineage, line: _Line) -> None:
    if not line.kept or line.former is None or (line.former in lineage.lines and line.former < line.id):
        return
    former = None if line.id == 1 else line.parent or 1
    fault = f"branch {line.id} follows branch {line.former}, which is not there"
    if case.found(fault, done=f"set to {former}", branch=line.id):
        case.db.execute(query("set_former"), {"key": lineage.session, "id": line.id, "former": former})


def _add_root(case: Inspection, lineage: Lineage) -> None:
    if case.found("it has no branch", done="a root was made", branch=1):
        root: dict[str, Any] = {"key": lineage.session, "id": 1, "parent": None, "fork_seq": 0}
        made = {"created": 0, "name": "", "operation": "create", "former": None}
        case.db.execute(query("add_branch"), root | made)
        lineage.lines[1] = _Line(1, (None, 0, None))


def _branches_with_entries(db: apsw.Connection, session: int) -> list[int]:
    found, after = list[int](), 0
    while True:
        ((branch,),) = db.execute(query("next_branch"), {"key": session, "after": after})
        if branch is None:
            return found
        found.append(branch)
        after = branch
