"""The Redis store: the same promises as any other store, and as durable as the server is configured to be.

`RedisStore` implements all six ports. Every change is one Lua script on the server, so it is atomic. `layout`
describes the keys that scripts read and write; the log is in `log`, the outbox in `outbox`. Sessions never
get a time to live: a session that expired before it was offloaded would be lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ...errors import Fenced, StoreError
from ...threads import INLINE, off_loop
from ..admission import busy, check_meta
from ..ahead import Ahead
from ..values import (
    Address,
    BranchRow,
    Change,
    Durability,
    FeedPage,
    Finding,
    Hit,
    Lease,
    Order,
    PageMark,
    Parcel,
    Receipt,
    Record,
    Recount,
    Removed,
    Row,
    SessionFilter,
    SessionRow,
    Span,
)
from . import feed, log
from .layout import (
    BUCKETS,
    DIGITS,
    END,
    MOST,
    VERSION,
    bucket_of,
    moment,
    named,
    natural,
    packed,
    session_key,
    session_keys,
    text,
)
from .lists import MergedList
from .log import refusal
from .losses import MAX_SESSIONS, LossDetector, compare_with_server
from .outbox import RedisOutbox
from .rows import born, record_arguments, session, session_fields
from .search import MAX_SCANNED, search
from .server import Server, script
from .server_settings import RedisSettings, claim_layout, described, settings, weakest
from .target import RedisTarget, parsed
from .verify import addresses, verified

PAGE = 100
"""Sessions that are fetched at a time."""

NO_REPAIR = (
    "{name} cannot be repaired in place: run `turnstate export --all` for each tenant, which says what it "
    "leaves out, then `turnstate import` into an empty database"
)


class RedisStore:
    """Sessions on a server, or on a Cluster."""

    def __init__(self, server: Server, target: RedisTarget, found: Sequence[RedisSettings]) -> None:
        self._server, self._target, self._settings = server, target, found
        self._outbox, self._appends = RedisOutbox(server), log.PipelinedAppends(server)
        # A server that cannot lose what it acknowledged needs no detection.
        self._losses = LossDetector(0 if self.durability == "fsync" else MAX_SESSIONS)

    async def close(self) -> None:
        """Finish pending work and close the connections; a child that inherited them does nothing."""
        if self._server.owner.is_elsewhere:
            return
        await self._appends.batches.close()  # first: what waits there has not been sent yet
        await self._server.close()

    # Log

    async def commit(self, change: Change) -> Receipt:
        """Apply a change as a whole, or raise the error of the first failed check and change nothing."""
        return await log.commit(self._server, self._appends, self._losses, change)

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span in order; ``limit`` selects the first ones, or the newest."""
        return await log.read(self._server, at, span, limit=limit, newest=newest, kinds=kinds)

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries with these ids, in log order."""
        return await log.find(self._server, at, ids)

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; its newest span comes first."""
        return await log.newest(self._server, at, spans, kinds)

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        return await log.branches(self._server, at)

    async def ahead(self, at: Address, kinds: Sequence[str]) -> tuple[SessionRow, Ahead]:
        """Return a session, and its log with the rows that are usually read already loaded."""
        known = self._losses.known(at)
        flat, rows, marks = await log.ahead(self._server, at, kinds)
        row = session(at, flat)
        self._losses.saw(row, born=born(flat), known=known)
        return row, Ahead(self, row, rows, marks)

    async def search(
        self,
        tenant: str,
        words: Sequence[str],
        *,
        user: str | None,
        session: str | None = None,
        before: int | None,
        limit: int,
    ) -> list[Hit]:
        """Return the entries that contain all the words, newest first, starting after a mark.

        Only the newest 10,000 entries after the mark are scanned.
        """
        which: dict[str, Any] = {"user": user, "session": session, "before": before, "limit": limit}
        return await search(self._server, tenant, words, **which)

    # Feed

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        """Return the entries of a session, on all branches, that were written after a given one."""
        return await feed.since(self._server, at, id, limit)

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        """Return the entries of all sessions of a tenant after a cursor; start at the beginning if empty."""
        return await feed.feed(self._server, tenant, cursor, limit)

    async def feed_end(self, tenant: str) -> str:
        """Return the cursor after all entries of a tenant that exist now."""
        return await feed.feed_end(self._server, tenant)

    # Directory

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
            "active": row.active,
            "fields": [field.decode() for field in fields],
            "records": len(records),
        }
        asked |= {"user": row.user} if row.user is not None else {}
        asked |= {"expires": natural(made.expires)} if made.expires is not None else {}
        large = sum(len(record.body) for record in records) > INLINE
        given = await off_loop(lambda: record_arguments(row.address, records), large=large)
        answer = await self._server.run(script("create"), session_keys(row.address), [packed(asked), *given])
        if answer[0] != b"made":
            raise refusal(row.address, answer)
        created = session(row.address, fields)
        self._losses.saw(created, born=int(answer[1]), known=None)
        return created

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""
        known = self._losses.known(at)
        (flat,) = await self._server.run(script("hashes"), [session_key(at, b"row")], twice=True)
        if not flat:
            raise refusal(at, [b"absent"])
        row = session(at, flat)
        self._losses.saw(row, born=born(flat), known=known)
        return row

    async def page(
        self,
        tenant: str,
        which: SessionFilter,
        *,
        order: Order = "created",
        after: PageMark | None = None,
        limit: int = 100,
    ) -> list[SessionRow]:
        """Return a page of sessions, the newest first by creation or by activity, starting after a mark."""
        user = which.user
        if order == "active" and user is not None:
            return await self._page_of_user_by_activity(tenant, user, which, after, limit)
        letter = b"d" if order == "created" else b"a"
        name = letter + named(tenant) if user is None else b"u" + named(tenant) + named(user)
        start = None if after is None else moment(after.moment) + text(after.id)
        listed = MergedList(self._server, name, after=start, newest=True)
        return await self._first(tenant, listed, limit, lambda row: _matches(row, which))

    async def _page_of_user_by_activity(
        self, tenant: str, user: str, which: SessionFilter, after: PageMark | None, limit: int
    ) -> list[SessionRow]:
        """Sort the sessions of a user by activity; only a tenant as a whole has such a list."""
        listed = MergedList(self._server, b"u" + named(tenant) + named(user))
        rows = await self._first(tenant, listed, MOST, lambda row: _matches(row, which))
        found = [row for row in rows if after is None or row.mark("active") < after]
        return sorted(found, key=lambda row: row.mark("active"), reverse=True)[: max(limit, 0)]

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
        expected: dict[str, Any] | None = None,
    ) -> SessionRow:
        """Change the given fields and keep the rest; raise `Conflict` if meta is not as expected."""
        changes = {
            b"title": None if title is None else text(title),
            b"tags": None if tags is None else msgspec.json.encode(sorted(set(tags))),
            b"meta": None if meta is None else msgspec.json.encode(meta),
            b"idle": None if idle is None else b"%d" % natural(idle),
        }
        given = [piece for name, value in changes.items() if value is not None for piece in (name, value)]
        while True:
            known = b"" if expected is None else await self._known_meta(at, expected)
            asked = [named(at.tenant), text(at.session), known, *given]
            answer = await self._server.run(script("update"), session_keys(at), asked, twice=expected is None)
            if answer[0] == b"there":
                return session(at, answer[1])
            if answer[0] != b"changed":
                raise refusal(at, answer)

    async def _known_meta(self, at: Address, expected: dict[str, Any]) -> bytes:
        """Check the metadata, and return its bytes; they must be unchanged at the time of the write."""
        (flat,) = await self._server.run(script("hashes"), [session_key(at, b"row")], twice=True)
        if not flat:
            raise refusal(at, [b"absent"])
        check_meta(session(at, flat), expected)
        return bytes(dict(zip(flat[::2], flat[1::2], strict=True))[b"meta"])

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that have been idle for too long, with neither a message nor a lease."""
        listed = MergedList(self._server, b"e" + named(tenant))
        return await self._first(tenant, listed, limit, lambda row: row.is_idle(now), until=moment(now + 1))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        asked = [named(at.tenant), text(at.session)]
        answer = await self._server.run(script("remove"), session_keys(at), asked)
        self._losses.forget(at)  # or what was removed on purpose would be reported as lost
        await log.sweep(self._server, at)  # also cleans up after an interrupted removal
        if answer[0] != b"gone":
            raise refusal(at, answer)
        entries, branches, keys, parcels = map(int, answer[1:])
        return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)

    async def _first(
        self,
        tenant: str,
        listed: MergedList,
        limit: int,
        wanted: Callable[[SessionRow], bool],
        *,
        until: bytes = END,
    ) -> list[SessionRow]:
        """Return the first wanted sessions of a list; skip those that were removed in the meantime."""
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

    # Outbox

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        return await self._outbox.take(now, until=until, limit=limit, tenant=tenant)

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._outbox.delivered(id)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; park the parcel if ``due`` is None."""
        await self._outbox.failed(id, error=error, due=due)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        return await self._outbox.parcels(tenant=tenant, parked=parked, limit=limit)

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        await self._outbox.revive(id, due=due)

    # Leases: part of the session's row

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Acquire the lease with a higher fence than ever before, or raise `Busy` while another is live."""
        answer = await self._lease(at, b"acquire", text(holder), _time(until), _time(now), b"")
        if answer[0] == b"busy":
            raise busy(at.session, answer[1].decode(errors="replace"), int(answer[2]) - now)
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
        """Release a lease, which counts as activity until now; do nothing if another worker took over."""
        whose = (named(at.tenant), text(at.session))
        await self._lease(at, b"release", b"", b"0", _time(now), _fence(lease), *whose)

    async def _lease(self, at: Address, action: bytes, *asked: bytes) -> list[bytes]:
        # If the answer is lost, a second attempt would mistake its own lease for that of another worker.
        twice = action != b"acquire"
        answer: list[bytes] = await self._server.run(
            script("lease"), session_keys(at), [action, *asked], twice=twice
        )
        return answer

    # Health

    @property
    def durability(self) -> Durability:
        """The durability of an acknowledged write, according to the settings that were read last."""
        return weakest(self._settings)

    def lost(self, at: Address) -> str:
        """Describe what is known to be lost of a session; return an empty string if nothing is."""
        return self._losses.loss(at)

    async def time(self) -> int | None:
        """Return the server's time in milliseconds; on a Cluster, the time of one master."""
        node, *_ = await self._server.nodes()
        seconds, rest = await self._server.ask("TIME", node=node)
        return int(seconds) * 1_000 + int(rest) // 1_000

    async def facts(self) -> dict[str, str]:
        """Return versions, settings and sizes for people to read."""
        self._settings = found = await settings(self._server, self._target)
        return {
            "store": "redis",
            "server": self._server.name,
            **described(found),
            "layout": str(VERSION),
            "buckets": str(BUCKETS),
            "search": f"the newest {MAX_SCANNED:,} entries after a mark",
        }

    async def scrub(self) -> bool:
        """Return False: removed data stays in the server's files until it rewrites them.

        `BGREWRITEAOF` and `BGSAVE` do that. They rewrite all data, so they are left to the operator of the
        server, as are replicas and backups.
        """
        return False

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check everything; ``repair`` raises `StoreError`, which says what to do instead.

        If the server may lose acknowledged writes, also report those that this store knows to be missing.
        """
        if repair:
            raise StoreError(NO_REPAIR.format(name=self._server.name))
        await compare_with_server(self._server, self._losses)
        for finding in self._losses.findings():
            yield finding
        async for finding in verified(self._server, recount=recount):
            yield finding

    async def addresses(self) -> AsyncIterator[Address]:
        """Yield the addresses of all sessions of all tenants, in any order, also of those in no list."""
        async for at in addresses(self._server):
            yield at


def _fence(lease: Lease) -> bytes:
    return b"%d" % min(max(lease.fence, -MOST), MOST)


def _time(moment: int) -> bytes:
    return b"%d" % natural(moment)


def _matches(row: SessionRow, which: SessionFilter) -> bool:
    return (
        (which.tag is None or which.tag in row.tags)
        and (which.since is None or row.active >= which.since)
        and (which.until is None or row.active < which.until)
        and which.live in (None, row.ended is None)
    )


async def connect(url: str) -> RedisStore:
    """Open ``redis://host:port/db``, ``redis+unix:///path`` or ``redis+cluster://host:port``."""
    target = parsed(url)
    server = Server(target)
    try:
        found = await settings(server, target)
        await claim_layout(server)
    except BaseException:  # a canceled task, too: nobody else could close these connections
        await server.close()
        raise
    return RedisStore(server, target, found)
