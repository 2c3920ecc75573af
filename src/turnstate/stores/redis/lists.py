"""Lists over all buckets: each bucket keeps its part sorted, and a merge sorts the whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from .layout import BUCKETS, DIGITS, END, index_key
from .server import Server, script

FIRST_FETCH = 8
"""Members that the first request takes from each bucket; later requests take more."""

MAX_FETCH = 1_024
"""The most members that a request takes from a bucket."""


class Member(NamedTuple):
    """A member of a list, without the letter and names that all members of the list begin with."""

    rest: bytes
    bucket: int


class _BucketPart:
    """One bucket's part of a list, as far as it has been fetched."""

    __slots__ = ("bucket", "fetched", "is_complete", "last")

    def __init__(self, bucket: int, last: bytes) -> None:
        self.bucket, self.last = bucket, last
        self.fetched = deque[bytes]()
        self.is_complete = False


class _Reversed(bytes):
    """Bytes that sort in reverse order."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)


class MergedList:
    """The members of a list over all buckets in one order, starting after a member, or after one per bucket.

    ``newest`` reverses the order. ``by_time`` orders members of the same time by their bucket.
    """

    def __init__(
        self,
        server: Server,
        name: bytes,
        *,
        after: bytes | Mapping[int, bytes] | None = None,
        newest: bool = False,
        by_time: bool = False,
        buckets: Iterable[int] = range(BUCKETS),
    ) -> None:
        begin, self._end = (name + END, name) if newest else (name, name + END)
        self._server, self._newest = server, newest
        self._name, self._rank = len(name), slice(len(name), len(name) + DIGITS if by_time else None)
        starts = after if isinstance(after, Mapping) else dict.fromkeys(buckets, after)
        self._parts = {
            bucket: _BucketPart(bucket, begin if (start := starts.get(bucket)) is None else name + start)
            for bucket in buckets
        }
        self._fronts: list[tuple[bytes, int]] | None = None
        self._count = FIRST_FETCH

    async def some(self, count: int) -> list[Member]:
        """Return the next members; fewer at the end of the list."""
        if self._fronts is None:
            await self._fill(list(self._parts.values()))
            self._fronts = [self._front(part) for part in self._parts.values() if part.fetched]
            heapify(self._fronts)
        fronts, found = self._fronts, list[Member]()
        while fronts and len(found) < count:
            part = self._parts[abs(fronts[0][1])]
            found.append(Member(part.fetched.popleft()[self._name :], part.bucket))
            if not part.fetched and not part.is_complete:
                self._count = min(2 * self._count, MAX_FETCH)
                await self._fill([part])
            if part.fetched:
                heapreplace(fronts, self._front(part))
            else:
                heappop(fronts)
        return found

    def _front(self, part: _BucketPart) -> tuple[bytes, int]:
        rank = part.fetched[0][self._rank]
        return (_Reversed(rank), -part.bucket) if self._newest else (rank, part.bucket)

    async def _fill(self, parts: Sequence[_BucketPart]) -> None:
        """Fetch the next members of some buckets."""
        by_bucket = {part.bucket: part for part in parts}
        groups = self._server.grouped(by_bucket)
        how = [b"newest" if self._newest else b"oldest", b"%d" % self._count, b"[" + self._end]
        calls = [
            (
                [index_key(bucket) for bucket in group],
                how + [b"(" + by_bucket[bucket].last for bucket in group],
            )
            for group in groups
        ]
        answers = await self._server.run_all(script("walk"), calls, twice=True)
        for part in parts:
            part.is_complete = True
        for group, answer in zip(groups, answers, strict=True):
            for position, members in answer:
                part = by_bucket[group[position - 1]]
                part.fetched.extend(members)
                part.is_complete = len(members) < self._count
                part.last = members[-1]
