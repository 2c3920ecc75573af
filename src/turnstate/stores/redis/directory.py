"""The directory on the server: sessions by their addresses, and lists of them over all buckets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from ..values import Address, Filter, Record, Removed, SessionRow
from .layout import (
    BUCKETS,
    DIGITS,
    END,
    bucket_of,
    index_key,
    moment,
    named,
    natural,
    packed,
    session_key,
    session_keys,
    text,
)
from .log import refusal
from .losses import Witness
from .rows import born, record_arguments, session, session_fields
from .server import Server, script

__all__ = ["Member", "RedisDirectory", "Walk", "sweep"]

# Walking a list over all buckets: each has its part in order, and the walk goes in the order of all.


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


PAGE = 100
"""Sessions that are fetched at once."""

STEP = 1_000
"""Entries of a removed session that are swept at once: a few milliseconds, in which others wait."""


class RedisDirectory:
    """Which sessions there are."""

    _server: Server
    _witness: Witness

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Create a session with its root branch and first entries, or raise `AlreadyExists`."""
        total = sum(record.tokens for record in records)
        tags = tuple(sorted(set(row.tags)))
        made = structs.replace(row, tags=tags, branch=1, seq=len(records), total=total)
        fields = session_fields(made)
        asked: dict[str, Any] = {
            "tenant": named(row.tenant).decode(),
            "session": row.id,
            "created": row.created,
            "fields": [field.decode() for field in fields],
            "records": len(records),
        }
        if row.user is not None:
            asked["user"] = row.user
        if made.expires is not None:
            asked["expires"] = natural(made.expires)
        arguments = [packed(asked), *record_arguments(row.address, records)]
        answer = await self._server.run(script("create"), session_keys(row.address), arguments)
        if answer[0] != b"made":
            raise refusal(row.address, answer)
        created = session(row.address, fields)
        self._witness.saw(created, born=int(answer[1]), known=None)
        return created

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""
        known = self._witness.known(at)
        (flat,) = await self._server.run(script("hashes"), [session_key(at, b"row")], twice=True)
        if not flat:
            raise refusal(at, [b"absent"])
        row = session(at, flat)
        self._witness.saw(row, born=born(flat), known=known)
        return row

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Return a page of sessions, newest first by creation, starting after a session."""
        user = which.user
        name = b"d" + named(tenant) if user is None else b"u" + named(tenant) + named(user)
        behind = None if after is None else moment(after.created) + text(after.id)
        listed = Walk(self._server, name, after=behind, newest=True)
        return await self._first(tenant, listed, limit, lambda row: _matches(row, which))

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
    ) -> SessionRow:
        """Change what is given and keep the rest."""
        changes = {
            b"title": None if title is None else text(title),
            b"tags": None if tags is None else msgspec.json.encode(sorted(set(tags))),
            b"meta": None if meta is None else msgspec.json.encode(meta),
            b"idle": None if idle is None else b"%d" % natural(idle),
        }
        given = [piece for name, value in changes.items() if value is not None for piece in (name, value)]
        asked = [named(at.tenant), text(at.session), *given]
        answer = await self._server.run(script("update"), session_keys(at), asked, twice=True)
        if answer[0] != b"there":
            raise refusal(at, answer)
        return session(at, answer[1])

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were idle for too long, without a message and without a lease."""

        def is_left(row: SessionRow) -> bool:
            return row.is_idle(now)

        listed = Walk(self._server, b"e" + named(tenant))
        return await self._first(tenant, listed, limit, is_left, until=moment(now + 1))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        asked = [named(at.tenant), text(at.session)]
        answer = await self._server.run(script("remove"), session_keys(at), asked)
        self._witness.forget(at)
        await sweep(self._server, at)  # also what an earlier removal left that was broken off
        if answer[0] != b"gone":
            raise refusal(at, answer)
        entries, branches, keys, parcels = map(int, answer[1:])
        return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)

    async def _first(
        self,
        tenant: str,
        listed: Walk,
        limit: int,
        wanted: Callable[[SessionRow], bool],
        *,
        until: bytes = END,
    ) -> list[SessionRow]:
        """Give the first sessions of a list that are wanted; what was removed meanwhile is passed over."""
        found = list[SessionRow]()
        while len(found) < limit:
            members = [member.rest for member in await listed.some(PAGE) if member.rest < until]
            if not members:
                break
            rows = await self._rows([Address(tenant, rest[DIGITS:].decode()) for rest in members])
            found += filter(wanted, rows)
        return found[: max(limit, 0)]

    async def _rows(self, some: Sequence[Address]) -> list[SessionRow]:
        by_bucket = {bucket_of(at): list[Address]() for at in some}
        for at in some:
            by_bucket[bucket_of(at)].append(at)
        groups = [
            [at for bucket in group for at in by_bucket[bucket]] for group in self._server.grouped(by_bucket)
        ]
        calls = [([session_key(at, b"row") for at in group], ()) for group in groups]
        answers = await self._server.run_all(script("hashes"), calls, twice=True)
        found = {
            at: session(at, flat)
            for group, answer in zip(groups, answers, strict=True)
            for at, flat in zip(group, answer, strict=True)
            if flat
        }
        return [found[at] for at in some if at in found]


async def sweep(server: Server, at: Address) -> None:
    """Take the words of a session that was removed out of the lists, a step at a time."""
    keys = [index_key(bucket_of(at)), session_key(at, b"gone")]
    asked = [named(at.tenant), text(at.session), b"%d" % STEP]
    while await server.run(script("sweep"), keys, asked, twice=True):
        pass


def _matches(row: SessionRow, which: Filter) -> bool:
    return (
        (which.tag is None or which.tag in row.tags)
        and (which.since is None or row.active >= which.since)
        and (which.until is None or row.active < which.until)
        and which.live in (None, row.ended is None)
    )
