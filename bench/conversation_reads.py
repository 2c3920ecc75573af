"""Counts what is read from a store: the rows that its methods return, and the bytes of their entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from turnstate.stores.port import Reads, Store
from turnstate.stores.values import Address, BranchRow, Row, SessionRow, Span

T = TypeVar("T")


class Counted(msgspec.Struct):
    """What was read: calls of the store, the rows that they returned, and the bytes of their entries."""

    calls: int = 0
    rows: int = 0
    bytes: int = 0

    def entries(self, rows: Iterable[Row]) -> None:
        """Count entries."""
        for row in rows:
            self.rows += 1
            self.bytes += len(row.body)

    def branches(self, rows: Sequence[BranchRow]) -> None:
        """Count branches; the names are all that varies in size."""
        self.rows += len(rows)
        self.bytes += sum(len(row.name) for row in rows)


class CountedReads:
    """A log that counts what it returns."""

    def __init__(self, reads: Reads, counted: Counted) -> None:
        self._reads, self._counted = reads, counted

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span."""
        self._counted.calls += 1
        found = await self._reads.read(at, span, limit=limit, newest=newest, kinds=kinds)
        self._counted.entries(found)
        return found

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids."""
        self._counted.calls += 1
        found = await self._reads.find(at, ids)
        self._counted.entries(found)
        return found

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind."""
        self._counted.calls += 1
        found = await self._reads.newest(at, spans, kinds)
        self._counted.entries(found.values())
        return found

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches."""
        self._counted.calls += 1
        found = await self._reads.branches(at)
        self._counted.branches(found)
        return found


class _Store(CountedReads):
    """The reads of a store, with those that it makes at once or ahead."""

    def __init__(self, store: Any, counted: Counted) -> None:
        super().__init__(_Unpatched(store), counted)
        self._at_once, self._ahead = getattr(store, "at_once", None), getattr(store, "ahead", None)

    async def at_once(
        self, at: Address, job: Callable[[SessionRow, Reads], Awaitable[T]], *, small: bool = False
    ) -> T:
        """Run a job that reads in one snapshot."""

        async def counting(row: SessionRow, reads: Reads) -> T:
            return await job(row, CountedReads(reads, self._counted))

        found: T = await self._at_once(at, counting, small=small)  # type: ignore[misc]
        return found

    async def ahead(self, at: Address, kinds: Sequence[str]) -> tuple[SessionRow, Reads]:
        """Return a session and a log that has its newest entries, a fixed number; it asks here for others."""
        self._counted.calls += 1
        found: tuple[SessionRow, Reads] = await self._ahead(at, kinds)  # type: ignore[misc]
        return found


class _Unpatched:
    """The methods of a store as they are before they are replaced."""

    def __init__(self, store: Reads) -> None:
        self.read, self.find, self.newest, self.branches = (
            store.read,
            store.find,
            store.newest,
            store.branches,
        )


@contextmanager
def counted_reads(store: Store) -> Iterator[Counted]:
    """Count what is read from a store in a block, by anybody who has it; it must have no slots."""
    counted = Counted()
    counting = _Store(store, counted)
    names = [one for one in ("read", "find", "newest", "branches", "at_once", "ahead") if hasattr(store, one)]
    for name in names:
        setattr(store, name, getattr(counting, name))
    try:
        yield counted
    finally:
        for name in names:
            delattr(store, name)
