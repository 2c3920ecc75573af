"""Setbacks: a store that came back without what it had acknowledged, as one handle can tell.

A session only grows, in its epoch, its version and the numbers of its entries. So an answer that lies
before what was known when it was asked for, or a second write under numbers that a first one got, means
that something was lost in between: in a power cut or a failover, on a store that does not sync first.
"""

from __future__ import annotations

from ..stores.values import Position, Receipt, SessionRow

__all__ = ["Setbacks"]


class Setbacks:
    """Compares what a store says with what it said before, and remembers what is to be told."""

    def __init__(self) -> None:
        self.notice = ""
        self._newest: Receipt | None = None

    def read(self, known: SessionRow, row: SessionRow) -> None:
        """Compare a session with how it was known when it was asked for."""
        if _rank(row) < _rank(known):
            self.happened(known.head, row.head)

    def wrote(self, known: SessionRow, receipt: Receipt) -> None:
        """Compare a receipt with how the session was known, and with the newest receipt before."""
        if receipt.repeated:
            return
        newest, before = self._newest, Position(receipt.branch, receipt.first - 1)
        if (receipt.epoch, receipt.version, receipt.last) < _rank(known):
            self.happened(known.head, before)
        elif newest and _overlap(newest, receipt):
            self.happened(newest.head, before)
        elif newest and newest.branch == receipt.branch and newest.last > receipt.last:
            return  # an answer that was overtaken
        self._newest = receipt

    def happened(self, known: Position, found: Position) -> None:
        """Note that the store went back."""
        self.notice = (
            f"the store lost what it had acknowledged: entry {known.seq} of branch {known.branch} was there, "
            f"then it ended at entry {found.seq} of branch {found.branch}; say again what is missing"
        )


def _rank(row: SessionRow) -> tuple[int, int, int]:
    """Put a session among all that it has been; while the version stays, only decisions are added."""
    return row.epoch, row.version, row.seq


def _overlap(one: Receipt, other: Receipt) -> bool:
    return one.branch == other.branch and one.first <= other.last and other.first <= one.last
