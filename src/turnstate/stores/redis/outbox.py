"""The outbox on the server: every bucket has its own parcels, and a claim checks all buckets."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import chain

from ...errors import NotFound
from ..values import Parcel
from .layout import BUCKETS, DIGITS, END, index_key, moment, named, natural, parcel_key, text
from .lists import Member, MergedList
from .rows import parcel
from .server import Server, script

MAX_REMEMBERED = 10_000
"""Parcels whose bucket is remembered: more than any worker has claimed at a time."""

MAX_ROUNDS = 4
"""How often parcels are looked up again if other workers claimed them first."""


class RedisOutbox:
    """The parcels of a store, and the buckets of those that it claimed recently."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buckets = OrderedDict[bytes, int]()

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        whose = b"" if tenant is None else named(tenant)
        taken = list[tuple[bytes, Parcel]]()
        for _ in range(MAX_ROUNDS):
            due = await self._members(
                _list_name(tenant, parked=False), limit - len(taken), until=moment(now + 1)
            )
            counts = Counter(member.bucket for member in due)
            calls = [
                (
                    [index_key(bucket), parcel_key(bucket)],
                    [whose, b"%d" % natural(now), b"%d" % natural(until), b"%d" % count],
                )
                for bucket, count in counts.items()
            ]
            answers = await self._server.run_all(script("claim"), calls)
            for bucket, claimed in zip(counts, answers, strict=True):
                for before, id, packed, tries, error in claimed:
                    state = b"%d %s 0 %s" % (until, tries, error)
                    taken.append((moment(int(before)) + id, parcel(id, packed, state)))
                    self._remember(id, bucket)
            others_claimed_some = len(due) > sum(map(len, answers))
            if not others_claimed_some or until <= now:
                break
        return [one for _, one in sorted(taken, key=lambda claimed: claimed[0])]

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._settle(b"delivered", id)
        self._buckets.pop(text(id), None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; park the parcel if ``due`` is None."""
        await self._settle(b"failed", id, b"" if due is None else b"%d" % natural(due), text(error))

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        states = (False, True) if parked is None else (parked,)
        lists = [await self._members(_list_name(tenant, parked=state), limit) for state in states]
        members = sorted(chain.from_iterable(lists))[: max(limit, 0)]
        return await self._parcels(members)

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        if not await self._settle(b"revive", id, b"%d" % natural(due), b""):
            raise NotFound(f"no parcel {id} is parked")

    async def _members(self, name: bytes, limit: int, *, until: bytes = END) -> list[Member]:
        members = await MergedList(self._server, name).some(limit)
        return [member for member in members if member.rest < until]

    async def _parcels(self, members: Sequence[Member]) -> list[Parcel]:
        """Fetch parcels; skip those that were delivered in the meantime."""
        by_bucket = {member.bucket: list[bytes]() for member in members}
        for member in members:
            by_bucket[member.bucket].append(member.rest[DIGITS:])
        groups = self._server.grouped(by_bucket)
        calls = [
            (
                [parcel_key(bucket) for bucket in group],
                [
                    piece
                    for n, bucket in enumerate(group, 1)
                    for id in by_bucket[bucket]
                    for piece in (b"%d" % n, id)
                ],
            )
            for group in groups
        ]
        answers = await self._server.run_all(script("parcels"), calls, twice=True)
        found = {
            (id, group[n - 1]): parcel(id, packed, state)
            for group, answer in zip(groups, answers, strict=True)
            for n, id, packed, state in answer
        }
        keys = ((member.rest[DIGITS:], member.bucket) for member in members)
        return [found[key] for key in keys if key in found]

    async def _settle(self, action: bytes, id: str, due: bytes = b"", error: bytes = b"") -> bool:
        """Record the outcome of a delivery; return True if the parcel was there."""
        name = text(id)
        known = self._buckets.get(name)
        done = known is not None and await self._settle_in([known], action, name, due, error)
        return done or await self._settle_in(await self._holders(name), action, name, due, error)

    async def _settle_in(
        self, buckets: Sequence[int], action: bytes, name: bytes, due: bytes, error: bytes
    ) -> bool:
        calls = [([index_key(one), parcel_key(one)], [action, name, due, error]) for one in buckets]
        return any(await self._server.run_all(script("settle"), calls, twice=action != b"revive"))

    async def _holders(self, name: bytes) -> list[int]:
        """Return the buckets that have a parcel."""
        groups = self._server.grouped(range(BUCKETS))
        calls = [([parcel_key(bucket) for bucket in group], [name]) for group in groups]
        answers = await self._server.run_all(script("holders"), calls, twice=True)
        return [group[n - 1] for group, answer in zip(groups, answers, strict=True) for n in answer]

    def _remember(self, name: bytes, bucket: int) -> None:
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)


def _list_name(tenant: str | None, *, parked: bool) -> bytes:
    if tenant is None:
        return b"q" if parked else b"o"
    return (b"r" if parked else b"p") + named(tenant)
