"""Rules for the branches of a session: each forks from an entry that exists, and the head is the end of one.

The row of a branch has no checksum, but its entries show where it forks: its first entry follows the fork,
and its running total continues the total there. So a branch that is missing, or whose row was changed, is
restored from its entries. If they fit no earlier branch, it becomes a root, and what came before it is lost.
Branch numbers have no gaps: a number far beyond the others that nothing confirms is itself damaged. The head
is the end of the branch whose last sequence number and total match it.
"""

from __future__ import annotations

from .entries import MISMATCH, PAGE, Seen, Stretch, is_sound
from .inspection import Check, Inspection, asked, text

MAX_LOST = 100_000
"""Entries or branches that may be missing before a number is considered damaged."""

MAX_GAP = 100
"""Consecutive branches that may be missing before one without entries; beyond that, its number is damaged."""


class BranchState:
    """A branch: what its row says, and what its entries show."""

    __slots__ = ("base", "expected", "first", "fork", "former", "id", "is_kept", "parent", "tip", "total")

    def __init__(self, id: int, row: tuple[int | None, int, int | None] | None) -> None:
        self.id, self.is_kept = id, row is not None
        self.parent, self.fork, self.former = row or (None, 0, None)
        self.first: int | None = None  # its first entry, and the total before it
        self.base = 0
        self.tip, self.total = self.fork, 0  # its last entry, and the total there
        self.expected = 0  # the last entry that it must have, since others build on it


class Lineage:
    """The branches of a session by id, and its head."""

    def __init__(
        self, session: int, lines: dict[int, BranchState], head: tuple[int, int, int], counter: str
    ) -> None:
        self.session, self.lines, self.counter = session, lines, counter
        self._models = {id: dict[int, str]() for id in lines}  # counters of the models, by sequence number
        self.head_branch, self.head_seq, self.head_total = head

    @classmethod
    def read(cls, session: int) -> Check[Lineage]:
        """Read the branches of a session from their rows and entries."""
        kept = yield from asked("branch_rows", key=session)
        rows = {id: (parent, fork, former) for id, parent, fork, former in kept}
        ends = {branch: rest for branch, *rest in (yield from asked("branch_ends", key=session))}
        lines = {id: BranchState(id, rows.get(id)) for id in sorted(rows.keys() | ends.keys())}
        for id, (first, base, tip, total) in ends.items():
            lines[id].first, lines[id].base, lines[id].tip, lines[id].total = first, base, tip, total
        ((branch, seq, total, counter),) = yield from asked("head", key=session)
        return cls(session, lines, (branch, seq, total), text(counter))

    def stretch(self, _: Inspection, branch: int) -> Check[Stretch]:
        """Return the part of a branch to walk: from its fork to its tip."""
        line = self.lines[branch]
        return Stretch(
            session=self.session,
            counter=self._counter_at(line.parent, line.fork),
            models=self._models.setdefault(branch, {}),
            branch=branch,
            seq=line.fork,
            total=(yield from self.total_at(line.parent, line.fork)),
            tip=line.tip,
            expected=line.expected,
            claimed=self.head_total if branch == self.head_branch else None,
        )

    def _counter_at(self, branch: int | None, seq: int) -> str:
        """Return the counter in force at a position of a path whose earlier branches have been walked."""
        while branch is not None and (line := self.lines.get(branch)):
            numbers = [number for number in self._models.get(branch, {}) if number <= seq]
            if numbers:
                return self._models[branch][max(numbers)]
            branch, seq = line.parent if line.parent and line.parent < branch else None, min(seq, line.fork)
        return self.counter

    def total_at(self, branch: int | None, seq: int) -> Check[int | None]:
        """Return the total at a position of a path, or None if there is no entry at it."""
        while branch is not None and seq > 0:
            line = self.lines.get(branch)
            if line is None:
                return None
            if seq > line.fork:
                found = yield from asked("total", key=self.session, branch=branch, seq=seq)
                return int(found[0][0]) if found else None
            branch = line.parent if line.parent is None or line.parent < line.id else 0
        return 0 if seq == 0 else None

    def ends(self) -> Check[dict[int, tuple[int, int | None]]]:
        """Return the last position of every branch, and the total there."""
        found = dict[int, tuple[int, int | None]]()
        for line in self.lines.values():
            found[line.id] = yield from self.end(line)
        return found

    def end(self, line: BranchState) -> Check[tuple[int, int | None]]:
        """Return the last position of a branch, and the total there."""
        if line.tip > line.fork:
            return line.tip, line.total
        return line.fork, (yield from self.total_at(line.parent, line.fork))


def inspect_lineage(case: Inspection, session: int) -> Check[Lineage]:
    """Check where every branch forks, and return the branches as they should be."""
    lineage = yield from Lineage.read(session)
    yield from _inspect_numbers(case, lineage)
    if not lineage.lines:
        _add_root(case, lineage)
    for line in lineage.lines.values():
        yield from _inspect_origin(case, lineage, line)
        _inspect_former(case, lineage, line)
    for line in lineage.lines.values():
        above = lineage.lines.get(line.parent) if line.parent is not None else None
        if above is not None and line.first is not None:
            above.expected = max(above.expected, line.fork)
    yield from _believe_head(lineage)
    yield from case.mended()
    return lineage


def inspect_missing_branches(case: Inspection, lineage: Lineage) -> Check[None]:
    """Check that branches are numbered without gaps; a missing one without entries becomes an empty root."""
    for id in sorted(set(range(1, max(lineage.lines, default=0))) - lineage.lines.keys()):
        if case.found(f"branch {id} is missing", done="created without entries", branch=id):
            case.mend("remake_branch", key=lineage.session, id=id, parent=None, fork_seq=0, former=1)
    yield from case.mended()


def inspect_head(case: Inspection, session: int) -> Check[None]:
    """Check that the head is the end of its branch and has the total there."""
    lineage = yield from Lineage.read(session)
    claimed, own = (lineage.head_seq, lineage.head_total), lineage.lines.get(lineage.head_branch)
    if not lineage.lines or (own and (yield from lineage.end(own)) == claimed):
        return
    ends = yield from lineage.ends()
    same = [id for id, end in ends.items() if end == claimed]
    branch = same[0] if len(same) == 1 else own.id if own else max(ends)
    seq, total = ends[branch]
    fault = (
        f"its head is entry {claimed[0]} of branch {lineage.head_branch} at {claimed[1]} tokens, "
        "which is not the last entry there"
    )
    done = f"it is entry {seq} of branch {branch} at {total} tokens"
    if case.found(fault, done=done, branch=lineage.head_branch, seq=claimed[0]):
        case.mend("set_head", key=session, branch=branch, seq=seq, total=total or 0)
        yield from case.mended()


def _inspect_numbers(case: Inspection, lineage: Lineage) -> Check[None]:
    """Set aside entries that fail to confirm a branch without a row; remove rows far beyond the others."""
    reached = 0
    for line in list(lineage.lines.values()):
        strays = list[Seen]() if line.is_kept else (yield from _strays(case, lineage.session, line, reached))
        if strays:
            for seen in strays:
                id = text(seen.id)
                if case.found(MISMATCH, done="it is set aside", branch=line.id, seq=seen.seq, id=id):
                    case.mend("set_entry_aside", entry=seen.key, fault=MISMATCH)
            del lineage.lines[line.id]
        elif line.first is None and line.id > reached + MAX_GAP and line.id != lineage.head_branch:
            fault = f"there are no branches between {reached} and {line.id}, which has no entries"
            if case.found(fault, done="its row is removed", branch=line.id):
                case.mend("remove_branch", key=lineage.session, id=line.id)
            del lineage.lines[line.id]
        else:
            reached = line.id


def _strays(case: Inspection, session: int, line: BranchState, reached: int) -> Check[list[Seen]]:
    """Return the entries of a branch if none matches its checksum or the branch number is impossible."""
    which = {"key": session, "branch": line.id, "after": 0, "tip": line.tip, "limit": PAGE}
    found = [Seen(*columns) for columns in (yield from asked("walked", **which))]
    if line.id > reached + MAX_LOST:  # a checksum that does not cover the branch confirms nothing
        return found
    return [] if any(is_sound(case, session, line.id, seen) for seen in found) else found


def _believe_head(lineage: Lineage) -> Check[None]:
    """Expect the entries that the session claims after the last one found, if the claim is plausible."""
    line = lineage.lines.get(lineage.head_branch)
    if line is None or not line.tip < lineage.head_seq <= line.tip + MAX_LOST:
        return
    ends = yield from lineage.ends()
    if (lineage.head_seq, lineage.head_total) in ends.values():
        return
    if lineage.head_total > (ends[line.id][1] or 0):
        line.expected = lineage.head_seq


def _inspect_origin(case: Inspection, lineage: Lineage, line: BranchState) -> Check[None]:
    parent, fork = yield from _origin(lineage, line)
    columns = {"key": lineage.session, "id": line.id, "parent": parent, "fork_seq": fork}
    where = f"after entry {fork} of branch {parent}" if parent is not None else "as a root"
    if not line.is_kept:
        if case.found(f"branch {line.id} has entries and no row", done=f"restored {where}", branch=line.id):
            case.mend("remake_branch", **columns, former=None if line.id == 1 else parent or 1)
    elif (parent, fork) != (line.parent, line.fork):
        fault = f"branch {line.id} forks after entry {line.fork} of branch {line.parent}, which is impossible"
        if case.found(fault, done=f"set {where}", branch=line.id):
            case.mend("set_origin", **columns)
    line.parent, line.fork = parent, fork
    line.tip = fork if line.first is None else max(line.tip, fork)


def _origin(lineage: Lineage, line: BranchState) -> Check[tuple[int | None, int]]:
    """Return where a branch forks: as its row says if that is possible, else as its entries show."""
    parent = lineage.lines.get(line.parent) if line.parent and line.parent < line.id else None
    is_root = line.is_kept and line.parent is None and line.fork == 0
    first, base = line.first, line.base
    if first is None and parent is None and not is_root and line.id == lineage.head_branch:
        first, base = lineage.head_seq + 1, lineage.head_total  # it has no entries, but it is the head
    if first is None:
        return (parent.id, max(0, min(line.fork, parent.tip))) if parent else (None, 0)
    if is_root and first == 1:
        return None, 0
    fork = line.fork if line.is_kept and 0 <= line.fork < first else first - 1
    if parent and (yield from lineage.total_at(parent.id, fork)) == base:
        return parent.id, fork
    if owner := (yield from _owner(lineage, line.id, first - 1, base)):
        return owner, first - 1
    return (parent.id, fork) if parent else (None, 0)


def _owner(lineage: Lineage, branch: int, seq: int, total: int) -> Check[int | None]:
    """Return the only earlier branch that has an entry with this sequence number and total."""
    fitting = list[int]()
    for line in lineage.lines.values():
        if line.id < branch and line.fork < seq <= line.tip:
            fitting += [line.id] if (yield from lineage.total_at(line.id, seq)) == total else []
    return fitting[0] if len(fitting) == 1 else None


def _inspect_former(case: Inspection, lineage: Lineage, line: BranchState) -> None:
    if not line.is_kept or line.former is None or (line.former in lineage.lines and line.former < line.id):
        return
    former = None if line.id == 1 else line.parent or 1
    fault = f"branch {line.id} follows branch {line.former}, which does not exist"
    if case.found(fault, done=f"set to {former}", branch=line.id):
        case.mend("set_former", key=lineage.session, id=line.id, former=former)


def _add_root(case: Inspection, lineage: Lineage) -> None:
    if case.found("it has no branch", done="a root was created", branch=1):
        case.mend("remake_branch", key=lineage.session, id=1, parent=None, fork_seq=0, former=None)
        lineage.lines[1] = BranchState(1, (None, 0, None))
