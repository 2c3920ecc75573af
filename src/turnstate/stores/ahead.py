"""Read-ahead: fetch the rows that are usually needed with the session, in one round trip for all.

    first rows   1 2 3 4              system messages that a conversation begins with
    marks                  15     30  the newest entry of each kind that decides what is shown
    newest rows         … 28 29 30 31 enough to build a short window

`Ahead` answers from these rows, which come from one snapshot, and asks the store for everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .port import Reads
from .values import Address, BranchRow, Row, SessionRow, Span

FIRST = 4
"""Rows to fetch from the beginning of the branch."""

NEWEST = 48
"""Rows to fetch from the end of the branch."""

NEWEST_BYTES = 256_000
"""Limit on the bytes of the newest rows; at least one row is fetched."""


class Ahead:
    """The log of a session of which some rows are already known, including the newest of some kinds."""

    def __init__(
        self, log: Reads, session: SessionRow, rows: Iterable[Row], marks: Mapping[str, Row | None]
    ) -> None:
        self._log, self._session, self._marks = log, session, marks
        self._rows = {row.seq: row for row in rows}
        self._ids = {row.id: row for row in self._rows.values()}
        self._tail, self._start = session.seq + 1, 0  # rows from `_tail` on and up to `_start` are known
        while self._tail - 1 in self._rows:
            self._tail -= 1
        while self._start + 1 in self._rows:
            self._start += 1

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span in order; with a limit, only the first ones or the newest."""
        if kinds is None and span.branch == self._session.branch:
            first, last = max(span.first, 1), min(span.last, self._session.seq)
            if limit is not None and newest:
                first = max(first, last - limit + 1)
            elif limit is not None:
                last = min(last, first + limit - 1)
            if first >= self._tail or last <= self._start:
                return [self._rows[seq] for seq in range(first, last + 1)]
        return await self._log.read(at, span, limit=limit, newest=newest, kinds=kinds)

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids, in the order of the log."""
        if all(id in self._ids for id in ids):
            return sorted((self._ids[id] for id in set(ids)), key=lambda row: row.seq)
        return await self._log.find(at, ids)

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
        session = self._session
        if all(kind in self._marks for kind in kinds) and list(spans) == [
            Span(session.branch, 1, session.seq)
        ]:
            return {kind: row for kind in kinds if (row := self._marks[kind])}
        return await self._log.newest(at, spans, kinds)

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        return await self._log.branches(at)
