"""The branches of a session: each comes from a place that is there, and ends where its entries end.

The entries bear witness. A branch that is gone or cannot be read is made again as a root behind whatever
stood before its first entry; an end that its entries do not reach, or go beyond, is set to the last one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from ...errors import StoreDamaged
from ..values import Branch, Finding, SessionRow
from .rows import branch, described, session
from .server import script
from .verify_entries import Edit, Inspection

__all__ = ["Tree", "hashes", "inspect_end", "inspect_lineage", "read_tree"]

MOST_LOST = 10_000
"""Entries, or branches, that a session may claim to have behind the last: a number above is a damaged one."""

_SCANNED = 1_000


class _Extent(Struct):
    """What the entries of a branch say of it: the first and the last that there is, and its total."""

    first: int
    last: int
    total: int


class Tree(Struct, frozen=True):
    """The row and the branches of a session as they say, and as their entries do."""

    row: SessionRow
    count: int
    branches: dict[int, Branch | None]  # none that cannot be read
    tips: dict[int, tuple[int, int]]
    extents: dict[int, _Extent]

    def tip(self, id: int) -> tuple[int, int] | None:
        """Give the last number of a branch, and the total there."""
        return (self.row.seq, self.row.total) if id == self.row.branch else self.tips.get(id)

    def extent(self, one: Branch) -> _Extent:
        """Give what the entries of a branch say of it."""
        return self.extents.get(one.id) or _Extent(one.fork_seq + 1, one.fork_seq, 0)

    def believed_tip(self, one: Branch) -> tuple[int, int] | None:
        """Give the tip of a branch, unless its entries speak against it."""
        tip, last = self.tip(one.id), self.extent(one).last
        return tip if tip is not None and last <= tip[0] <= last + MOST_LOST else None


async def hashes(case: Inspection) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Read the row and the branches at one moment."""
    keys = [case.key(b"row"), case.key(b"branch")]
    found = await case.server.run(script("hashes"), keys, twice=True)
    row, branches = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in found)
    case.born = row.get(b"born", b"")
    case.head = row.get(b"branch", b"") + b":" + row.get(b"seq", b"")
    return row, branches


async def read_tree(case: Inspection) -> Tree | None:
    """Read everything but the entries; nothing where the session is gone or its row cannot be read.

    The entries are listed first: what is appended meanwhile is known to the row that is read afterwards.
    """
    extents = await _extents(case)
    kept, branches = await hashes(case)
    try:
        row = session(case.at, [piece for pair in kept.items() for piece in pair])
        count = int(kept[b"branches"])
    except (StoreDamaged, KeyError, ValueError):
        return None
    known = {int(id): _branch(int(id), value) for id, value in branches.items() if id.isdigit()}
    tips = {int(id[1:]): tip for id, value in branches.items() if id[:1] == b"t" and (tip := _tip(value))}
    return Tree(row, count, known, tips, extents)


async def inspect_lineage(case: Inspection, tree: Tree) -> AsyncIterator[Finding]:
    """Check where every branch comes from, and where it ends."""
    last = max((*tree.branches, *tree.extents), default=1)
    for id in range(1, max(last, min(tree.count, last + MOST_LOST)) + 1):
        one = tree.branches.get(id)
        if one is None or (one.parent is not None and one.parent not in tree.branches):
            yield await _rooted(case, tree, id)
        elif finding := await _ended(case, tree, one):
            yield finding
    if not last <= tree.count <= last + MOST_LOST:
        yield await case.found(
            f"it counts {tree.count} branches, and has {last}",
            done="counted again",
            edits=[(b"HSET", b"row", b"branches", b"%d" % last)],
            of_head=True,
        )
    if not 1 <= tree.row.branch <= max(last, tree.count):
        end = tree.extents.get(last) or _Extent(1, 0, 0)
        head = (b"branch", b"%d" % last, b"seq", b"%d" % end.last, b"total", b"%d" % end.total)
        yield await case.found(
            f"its head is on branch {tree.row.branch}, which is not there",
            done=f"it is on branch {last}",
            edits=[(b"HSET", b"row", *head)],
            of_head=True,
        )


async def inspect_end(case: Inspection, tree: Tree, id: int, total: int) -> AsyncIterator[Finding]:
    """Check that the end of a branch has the total that its entries add up to."""
    tip = tree.tip(id)
    if tip is not None and tip[1] != total:
        yield await case.found(
            f"the total at its end is {tip[1]}, and {total} by its entries",
            done="worked out again",
            edits=[_end(tree, id, tip[0], total)],
            branch=id,
            seq=tip[0],
            of_head=True,
        )


async def _rooted(case: Inspection, tree: Tree, id: int) -> Finding:
    extent = tree.extents.get(id)
    fork = extent.first - 1 if extent else 0
    edits: list[Edit] = [(b"HSET", b"branch", b"%d" % id, b"|%d|0||0:repair" % fork)]
    if id != tree.row.branch and id not in tree.tips:
        end = extent or _Extent(1, fork, 0)
        edits.append((b"HSET", b"branch", b"t%d" % id, b"%d %d" % (end.last, end.total)))
    fault = f"branch {id} is missing" if id not in tree.branches else f"branch {id} cannot be read"
    return await case.found(fault, done="made again as a root", edits=edits, branch=id, of_head=True)


async def _ended(case: Inspection, tree: Tree, one: Branch) -> Finding | None:
    if tree.believed_tip(one) is not None:
        return None
    tip, extent = tree.tip(one.id), tree.extent(one)
    claimed = "nowhere" if tip is None else f"at entry {tip[0]}"
    return await case.found(
        f"branch {one.id} ends {claimed}, and its last entry is {extent.last}",
        done=f"it ends at entry {extent.last}",
        edits=[_end(tree, one.id, extent.last, extent.total)],
        branch=one.id,
        seq=extent.last,
        of_head=True,
    )


def _end(tree: Tree, id: int, seq: int, total: int) -> Edit:
    if id == tree.row.branch:
        return b"HSET", b"row", b"seq", b"%d" % seq, b"total", b"%d" % total
    return b"HSET", b"branch", b"t%d" % id, b"%d %d" % (seq, total)


async def _extents(case: Inspection) -> dict[int, _Extent]:
    extents, cursor = dict[int, _Extent](), b"0"
    while True:
        cursor, flat = await case.server.run(
            script("scanned"), [case.key(b"entry")], [cursor, b"%d" % _SCANNED], twice=True
        )
        for place, line in zip(flat[::2], flat[1::2], strict=True):
            _widen(extents, place, line)
        if cursor == b"0":
            return extents


def _widen(extents: dict[int, _Extent], place: bytes, line: bytes) -> None:
    try:
        id, seq = map(int, place.split(b":"))
    except ValueError:
        return
    told = described(line)
    extent = extents.setdefault(id, _Extent(seq, 0, 0))
    extent.first = min(extent.first, seq)
    if seq > extent.last:
        extent.last, extent.total = seq, told.total if told else 0


def _branch(id: int, value: bytes) -> Branch | None:
    try:
        return branch(id, value)
    except StoreDamaged:
        return None


def _tip(value: bytes) -> tuple[int, int] | None:
    try:
        seq, total = map(int, value.split(b" "))
    except ValueError:
        return None
    return seq, total
