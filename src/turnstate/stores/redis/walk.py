"""Walking a list over all buckets: each has its part in order, and the walk goes in the order of all.

The first look takes a few members of every bucket. The one that stands first over all is next; when a
bucket runs out, more of it is fetched, twice as much as before. So a page of a list that is spread evenly
costs one look, and a list that lies in one bucket costs few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from .layout import BUCKETS, DIGITS, END, index_key
from .scripts import script
from .server import Server

__all__ = ["Member", "Walk"]

FEW = 8
"""Members of a bucket that the first look takes."""

MANY = 1_024
"""Members of a bucket that any look takes."""


class Member(NamedTuple):
    """What stands in a list, without the letter and names that the list begins with."""

    rest: bytes
    bucket: int


class _Part:
    """The members of one bucket, as far as they are known."""

    __slots__ = ("behind", "bucket", "known", "whole")

    def __init__(self, bucket: int, behind: bytes) -> None:
        self.bucket, self.behind = bucket, behind
        self.known = deque[bytes]()
        self.whole = False


class _Reversed(bytes):
    """Bytes that sort the other way round."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)


class Walk:
    """The members of a list in order, from behind a place on.

    ``newest`` gives the last first. ``by_time`` puts members that differ in nothing but what follows their
    time in the order of their buckets.
    """

    def __init__(
        self,
        server: Server,
        name: bytes,
        *,
        after: bytes | None = None,
        newest: bool = False,
        by_time: bool = False,
    ) -> None:
        begin, self._end = (name + END, name) if newest else (name, name + END)
        near = begin if after is None else name + after
        self._server, self._newest = server, newest
        self._name, self._rank = len(name), slice(len(name), len(name) + DIGITS if by_time else None)
        self._parts = [_Part(bucket, near) for bucket in range(BUCKETS)]
        self._heads: list[tuple[bytes, int]] | None = None
        self._count = FEW

    async def some(self, count: int) -> list[Member]:
        """Give the next members, fewer where the list ends."""
        if self._heads is None:
            await self._fill(self._parts)
            self._heads = [self._head(part) for part in self._parts if part.known]
            heapify(self._heads)
        heads, found = self._heads, list[Member]()
        while heads and len(found) < count:
            part = self._parts[abs(heads[0][1])]
            found.append(Member(part.known.popleft()[self._name :], part.bucket))
            if not part.known and not part.whole:
                self._count = min(2 * self._count, MANY)
                await self._fill([part])
            if part.known:
                heapreplace(heads, self._head(part))
            else:
                heappop(heads)
        return found

    def _head(self, part: _Part) -> tuple[bytes, int]:
        rank = part.known[0][self._rank]
        return (_Reversed(rank), -part.bucket) if self._newest else (rank, part.bucket)

    async def _fill(self, parts: Sequence[_Part]) -> None:
        """Fetch the next members of some buckets."""
        by_bucket = {part.bucket: part for part in parts}
        groups = self._server.grouped(by_bucket)
        how = [b"newest" if self._newest else b"oldest", b"%d" % self._count, b"[" + self._end]
        calls = [
            (
                [index_key(bucket) for bucket in group],
                how + [b"(" + by_bucket[bucket].behind for bucket in group],
            )
            for group in groups
        ]
        answers = await self._server.run_all(script("walk"), calls, twice=True)
        for part in parts:
            part.whole = True
        for group, answer in zip(groups, answers, strict=True):
            for position, members in answer:
                part = by_bucket[group[position - 1]]
                part.known.extend(members)
                part.whole = len(members) < self._count
                part.behind = members[-1]
