"""Paths: the way from the root to a head, as runs of entries on branches.

Sequence numbers go on over a fork, so a number is a place on the path whatever branches it crosses.
Almost every path is one span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..stores.values import Branch, Position, Span

__all__ = ["between", "spans"]


def spans(branches: Iterable[Branch], head: Position) -> list[Span]:
    """Give the runs of entries that lead to a head, the newest first."""
    known = {branch.id: branch for branch in branches}
    path, at, last = list[Span](), known.get(head.branch), head.seq
    while at is not None:
        if last > at.fork_seq:
            path.append(Span(at.id, at.fork_seq + 1, last))
        last = min(last, at.fork_seq)
        at = known.get(at.parent) if at.parent is not None else None
    return path


def between(path: Sequence[Span], first: int, last: int) -> list[Span]:
    """Give the part of a path from one number to another, both included, the newest span first."""
    clipped = (Span(span.branch, max(span.first, first), min(span.last, last)) for span in path)
    return [span for span in clipped if span.first <= span.last]
