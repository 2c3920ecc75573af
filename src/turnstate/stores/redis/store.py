"""The Redis store: the same promises as any other store, and durable as far as the server is set to be.

Sessions are never given a time to live: one that vanished before it was offloaded would be lost.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import chain

from ...errors import Busy, Fenced, NotFound
from ..values import Address, Durability, Finding, Lease, Parcel, Recount
from .directory import Member, RedisDirectory, Walk
from .layout import (
    BUCKETS,
    DIGITS,
    END,
    MOST,
    VERSION,
    index_key,
    moment,
    named,
    natural,
    parcel_key,
    session_keys,
    text,
)
from .log import RedisLog, refusal
from .losses import MOST_SESSIONS, Witness, look_for
from .rows import parcel
from .search import MOST_LOOKED_AT, RedisSearch
from .server import Server, script
from .settings import Settings, claim_layout, settings
from .target import Target, parsed
from .verify import verified

__all__ = ["RedisHealth", "RedisLeases", "RedisOutbox", "RedisStore", "connect"]

# What the store says of itself: versions, settings, and what they are worth.


class RedisHealth:
    """Facts for people, and a check of everything."""

    _server: Server
    _target: Target
    _settings: Sequence[Settings]
    _witness: Witness

    @property
    def durability(self) -> Durability:
        """What an acknowledgement meant when the store was opened."""
        return "best_effort" if any(one.shortcomings for one in self._settings) else "fsync"

    def lost(self, at: Address) -> str:
        """Return what is known to be lost of a session, for people to read; empty if nothing is."""
        return self._witness.loss(at)

    async def time(self) -> int | None:
        """Return the server's time in milliseconds; that of one master of a Cluster."""
        node, *_ = await self._server.nodes()
        seconds, rest = await self._server.ask("TIME", node=node)
        return int(seconds) * 1_000 + int(rest) // 1_000

    async def facts(self) -> dict[str, str]:
        """Return versions, settings and sizes for people to read."""
        self._settings = found = await settings(self._server, self._target)

        def told(name: str) -> str:
            return ", ".join(sorted({str(getattr(one, name)) or "unknown" for one in found}))

        weak = sorted({reason for one in found for reason in one.shortcomings})
        return {
            "store": "redis",
            "server": self._server.name,
            told("program"): told("version"),
            "masters": str(len(found)),
            "replicas": str(sum(one.replicas for one in found)),
            "durability": f"{self.durability} ({'; '.join(weak)})" if weak else self.durability,
            "appendonly": told("appendonly"),
            "appendfsync": told("appendfsync"),
            "save": told("save"),
            "maxmemory": told("maxmemory"),
            "maxmemory_policy": told("maxmemory_policy"),
            "used_memory": told("used_memory"),
            "layout": str(VERSION),
            "buckets": str(BUCKETS),
            "search": f"the newest {MOST_LOOKED_AT:,} entries behind a mark",
        }

    async def scrub(self) -> bool:
        """Do nothing, and say so: what was removed stands in the server's files until it writes them anew.

        `BGREWRITEAOF` and `BGSAVE` do that; they cost as much as all data, so they are left to whoever runs
        the server, as are replicas and backups.
        """
        return False

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check everything, and with ``repair`` move damaged records aside.

        Where the server may lose what it acknowledged, also tell what this store knows to be missing.
        """
        await look_for(self._server, self._witness)
        for finding in self._witness.findings(repair=repair):
            yield finding
        async for finding in verified(self._server, repair=repair, recount=recount):
            if repair:
                self._witness.forget(Address(finding.tenant, finding.session))
            yield finding


# Leases on the server: a fence that only grows, and a time that lets go of the dead.


class RedisLeases:
    """The lease of a session is part of its row."""

    _server: Server

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another one is live."""
        answer = await self._lease(at, b"acquire", text(holder), _time(until), _time(now), b"")
        if answer[0] == b"busy":
            whose = answer[1].decode(errors="replace") or "another worker"
            raise Busy(f"session {at.session} is leased by {whose}")
        if answer[0] != b"held":
            raise refusal(at, answer)
        return Lease(fence=int(answer[1]), until=until)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Extend a lease, or raise `Fenced` if another worker took over."""
        answer = await self._lease(at, b"renew", b"", _time(until), b"0", _fence(lease))
        if answer[0] == b"fenced":
            raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
        if answer[0] != b"held":
            raise refusal(at, answer)
        return Lease(fence=lease.fence, until=until)

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Release a lease, which counts as activity until then; do nothing if another worker took over."""
        whose = (named(at.tenant), text(at.session))
        await self._lease(at, b"release", b"", b"0", _time(now), _fence(lease), *whose)

    async def _lease(self, at: Address, deed: bytes, *asked: bytes) -> list[bytes]:
        # A lease whose answer was lost would look like another's when it is asked for again.
        twice = deed != b"acquire"
        answer: list[bytes] = await self._server.run(
            script("lease"), session_keys(at), [deed, *asked], twice=twice
        )
        return answer


def _fence(lease: Lease) -> bytes:
    return b"%d" % min(max(lease.fence, -MOST), MOST)


def _time(moment: int) -> bytes:
    return b"%d" % natural(moment)


# The outbox on the server: every bucket has parcels of its own, and whoever takes some looks at all.


REMEMBERED = 10_000
"""Parcels whose bucket is known without asking: more than any worker has in hand."""

ROUNDS = 4
"""How often a taker looks again when others were faster."""


class RedisOutbox:
    """What is to be delivered."""

    _server: Server
    _buckets: OrderedDict[bytes, int]

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        whose = b"" if tenant is None else named(tenant)
        taken = list[tuple[bytes, Parcel]]()
        for _ in range(ROUNDS):
            due = await self._members(_list(tenant, parked=False), limit - len(taken), until=moment(now + 1))
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
                    standing = b"%d %s 0 %s" % (until, tries, error)
                    taken.append((moment(int(before)) + id, parcel(id, packed, standing)))
                    self._remember(id, bucket)
            others_were_faster = len(due) > sum(map(len, answers))
            if not others_were_faster or until <= now:
                break
        return [one for _, one in sorted(taken, key=lambda claimed: claimed[0])]

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._settle(b"delivered", id)
        self._buckets.pop(text(id), None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; without a time the parcel is parked."""
        await self._settle(b"failed", id, b"" if due is None else b"%d" % natural(due), text(error))

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        states = (False, True) if parked is None else (parked,)
        lists = [await self._members(_list(tenant, parked=state), limit) for state in states]
        members = sorted(chain.from_iterable(lists))[: max(limit, 0)]
        return await self._parcels(members)

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        if not await self._settle(b"revive", id, b"%d" % natural(due), b""):
            raise NotFound(f"no parcel {id} is parked")

    async def _members(self, name: bytes, limit: int, *, until: bytes = END) -> list[Member]:
        members = await Walk(self._server, name).some(limit)
        return [member for member in members if member.rest < until]

    async def _parcels(self, members: Sequence[Member]) -> list[Parcel]:
        """Fetch parcels; one that was delivered meanwhile is passed over."""
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
            (id, group[n - 1]): parcel(id, packed, standing)
            for group, answer in zip(groups, answers, strict=True)
            for n, id, packed, standing in answer
        }
        keys = ((member.rest[DIGITS:], member.bucket) for member in members)
        return [found[key] for key in keys if key in found]

    async def _settle(self, deed: bytes, id: str, due: bytes = b"", error: bytes = b"") -> bool:
        """Write down what came of a parcel; tell whether there was one."""
        name = text(id)
        known = self._buckets.get(name)
        done = known is not None and await self._settle_in([known], deed, name, due, error)
        return done or await self._settle_in(await self._holders(name), deed, name, due, error)

    async def _settle_in(
        self, buckets: Sequence[int], deed: bytes, name: bytes, due: bytes, error: bytes
    ) -> bool:
        calls = [([index_key(one), parcel_key(one)], [deed, name, due, error]) for one in buckets]
        return any(await self._server.run_all(script("settle"), calls, twice=deed != b"revive"))

    async def _holders(self, name: bytes) -> list[int]:
        """Ask all buckets for a parcel."""
        groups = self._server.grouped(range(BUCKETS))
        calls = [([parcel_key(bucket) for bucket in group], [name]) for group in groups]
        answers = await self._server.run_all(script("holders"), calls, twice=True)
        return [group[n - 1] for group, answer in zip(groups, answers, strict=True) for n in answer]

    def _remember(self, name: bytes, bucket: int) -> None:
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)


def _list(tenant: str | None, *, parked: bool) -> bytes:
    if tenant is None:
        return b"q" if parked else b"o"
    return (b"r" if parked else b"p") + named(tenant)


class RedisStore(RedisLog, RedisSearch, RedisDirectory, RedisOutbox, RedisLeases, RedisHealth):
    """Sessions on a server, or on a Cluster."""

    def __init__(self, server: Server, target: Target, found: Sequence[Settings]) -> None:
        self._server, self._target, self._settings = server, target, found
        self._buckets = OrderedDict()
        # What a server keeps for certain needs no witness.
        self._witness = Witness(0 if self.durability == "fsync" else MOST_SESSIONS)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._server.close()


async def connect(url: str) -> RedisStore:
    """Open ``redis://host:port/db``, ``redis+unix:///path`` or ``redis+cluster://host:port``."""
    target = parsed(url)
    server = Server(target)
    try:
        found = await settings(server, target)
        await claim_layout(server)
    except BaseException:
        await server.close()
        raise
    return RedisStore(server, target, found)
