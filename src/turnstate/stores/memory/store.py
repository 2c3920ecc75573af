"""The memory store: the same promises as any other store, for as long as the process lives.

It shows what a store does in the simplest form. Rows, branches and parcels are immutable, and the
only dictionary in a session row is copied, so callers cannot change stored data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import structs

from ...errors import AlreadyExists, Fenced, InputError, NotFound
from ...process import Owner
from ...threads import INLINE, off_loop
from ..admission import admitted, advanced, busy, check_meta
from ..values import (
    MESSAGE,
    Address,
    BranchRow,
    Change,
    Durability,
    FeedItem,
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
    feed_number,
)
from .tables import MemoryTables, StoredSession, private, written

_named: dict[str, MemoryStore] = {}


class MemoryStore:
    """Sessions in dictionaries."""

    durability: Durability = "memory"

    def __init__(self) -> None:
        self._tables = MemoryTables()
        self.owner = Owner(self, "a store in memory")

    @property
    def _state(self) -> MemoryTables:
        self.owner.check()  # a forked child has a copy, and what it writes there reaches no one
        return self._tables

    async def close(self) -> None:
        """Keep everything: another handle of the same name may be open."""

    # Log

    async def commit(self, change: Change) -> Receipt:
        """Apply a change as a whole, or raise the first check that fails and change nothing."""
        with self._state.lock:
            kept = self._state.kept(change.at)
            if repeated := admitted(kept.row, change, kept.known(change)):
                return repeated
            return self._take(kept, change)

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
        with self._state.lock:
            rows = self._state.kept(at).slice(span)
        if kinds is not None:
            rows = [row for row in rows if row.kind in kinds and row.kind != MESSAGE]
        if limit is None or limit >= len(rows):
            return rows
        return rows[len(rows) - limit :] if newest else rows[:limit]

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids, in the order of the log."""
        with self._state.lock:
            known = self._state.kept(at).by_id
            found = [known[id] for id in set(ids) if id in known]
        return sorted(found, key=lambda row: (row.branch, row.seq))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
        missing, found = set(kinds), dict[str, Row]()
        with self._state.lock:
            kept = self._state.kept(at)
            for span in spans:
                for row in reversed(kept.slice(span)):
                    if row.kind in missing:
                        missing.remove(row.kind)
                        found[row.kind] = row
                    if not missing:
                        return found
        return found

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        with self._state.lock:
            return list(self._state.kept(at).branches.values())

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
        """Return the entries that contain all the words, newest first, starting after a mark."""
        wanted, hits = frozenset(words), list[Hit]()
        if not wanted or limit < 1:
            return hits
        await self._cut_words(tenant)
        with self._state.lock:
            index, sessions = self._state.index, self._state.sessions
            end = len(index) if before is None else min(before, len(index))
            for mark in range(end - 1, -1, -1):
                entry = index[mark]
                if entry is None or entry.at.tenant != tenant or not wanted <= entry.words:
                    continue
                if session not in (None, entry.at.session):
                    continue
                if user is not None and sessions[entry.at].row.user != user:
                    continue
                hits.append(Hit(session=entry.at.session, row=entry.row, mark=mark))
                if len(hits) == limit:
                    break
        return hits

    async def _cut_words(self, tenant: str) -> None:
        """Split entries that are searched for the first time into words, in a thread if they are long."""
        with self._state.lock:
            new = [one for one in self._state.index if one and one.at.tenant == tenant and not one.is_cut]
        large = sum(len(one.row.body) for one in new) > INLINE
        await off_loop(lambda: [one.words for one in new], large=large)

    # Feed

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        """Return the entries of a session, on all branches, that were written after a given one."""
        with self._state.lock:
            known = self._state.kept(at).by_id
            if id is not None and id not in known:
                raise NotFound(f"session {at.session} has no entry {id}")
            ids = [item.row.id for item in self._state.index if item is not None and item.at == at]
            start = 0 if id is None else ids.index(id) + 1
            return [known[one] for one in ids[start : start + limit]]

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        """Return the entries of all sessions of a tenant after a cursor; an empty one means the beginning."""
        with self._state.lock:
            index, sessions, found = self._state.index, self._state.sessions, list[FeedItem]()
            place = feed_number(cursor)
            while place < len(index) and len(found) < limit:
                item, place = index[place], place + 1
                if item is not None and item.at.tenant == tenant:
                    row = sessions[item.at].by_id[item.row.id]
                    found.append(FeedItem(session=item.at.session, row=row, cursor=str(place)))
            return FeedPage(found, str(place))

    async def feed_end(self, tenant: str) -> str:
        """Return the cursor after all entries of a tenant that exist now."""
        with self._state.lock:
            return str(len(self._state.index))

    def _take(self, kept: StoredSession, change: Change) -> Receipt:
        made = _forked(kept, change)
        branch = made.id if made else kept.row.branch if change.select is None else change.select
        seq = made.fork_seq if made else kept.tip(branch)
        total = kept.total(made.parent if made else branch, seq)
        kept.check_new(change.records)
        rows = written(change.records, branch=branch, seq=seq, total=total)
        after = advanced(kept.row, change, branch=branch, seq=seq, total=total)
        receipt = Receipt(
            epoch=after.epoch, version=after.version, branch=branch, first=seq + 1, last=after.seq
        )
        if made:
            kept.branches[made.id], kept.rows[made.id] = made, []
        kept.row = after
        self._state.append(kept, rows)
        for parcel in change.parcels:
            self._state.outbox.setdefault(parcel.id, parcel)
        if change.key:
            kept.remember(change.key, receipt, change)
        return receipt

    # Directory

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Create a session with its root branch and first entries, or raise `AlreadyExists`."""
        with self._state.lock:
            if row.address in self._state.sessions:
                raise AlreadyExists(f"session {row.id} already exists")
            rows = written(records, branch=1, seq=0, total=0)
            total = rows[-1].total if rows else 0
            tags = tuple(sorted(set(row.tags)))
            kept = StoredSession(
                structs.replace(private(row), tags=tags, branch=1, seq=len(rows), total=total)
            )
            kept.check_new(records)
            self._state.sessions[row.address] = kept
            self._state.append(kept, rows)
            return private(kept.row)

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""
        with self._state.lock:
            return private(self._state.kept(at).row)

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
        found = [row for row in self._rows(tenant) if _matches(row, which)]
        if after is not None:
            found = [row for row in found if row.mark(order) < after]
        found.sort(key=lambda row: row.mark(order), reverse=True)
        return [private(row) for row in found[:limit]]

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
        """Update the given fields; raise `Conflict` if the current meta differs from ``expected``."""
        changes = {
            "title": title,
            "tags": None if tags is None else tuple(sorted(set(tags))),
            "meta": meta,
            "idle": idle,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        with self._state.lock:
            kept = self._state.kept(at)
            check_meta(kept.row, expected)
            kept.row = private(structs.replace(kept.row, **given))
            return private(kept.row)

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that have been idle for too long, with neither a message nor a lease."""
        idle = [row for row in self._rows(tenant) if row.is_idle(now)]
        idle.sort(key=lambda row: (row.active + row.idle, row.id))
        return [private(row) for row in idle[:limit]]

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        with self._state.lock:
            kept, outbox = self._state.kept(at), self._state.outbox
            del self._state.sessions[at]
            self._state.index = [None if item and item.at == at else item for item in self._state.index]
            parcels = [id for id, parcel in outbox.items() if (parcel.tenant, parcel.session) == at]
            for id in parcels:
                del outbox[id]
            return Removed(
                entries=len(kept.by_id),
                branches=len(kept.branches),
                keys=kept.keys,
                parcels=len(parcels),
            )

    def _rows(self, tenant: str) -> list[SessionRow]:
        with self._state.lock:
            return [kept.row for at, kept in self._state.sessions.items() if at.tenant == tenant]

    # Outbox

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        with self._state.lock:
            due = [parcel for parcel in self._waiting(tenant, parked=False) if parcel.due <= now][:limit]
            taken = [structs.replace(parcel, due=until, tries=parcel.tries + 1) for parcel in due]
            self._state.outbox.update({parcel.id: parcel for parcel in taken})
            return taken

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        with self._state.lock:
            self._state.outbox.pop(id, None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; without a time the parcel is parked."""
        with self._state.lock:
            if parcel := self._state.outbox.get(id):
                later = parcel.due if due is None else due
                self._state.outbox[id] = structs.replace(parcel, error=error, due=later, parked=due is None)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        with self._state.lock:
            return self._waiting(tenant, parked)[:limit]

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        with self._state.lock:
            parcel = self._state.outbox.get(id)
            if parcel is None or not parcel.parked:
                raise NotFound(f"no parcel {id} is parked")
            self._state.outbox[id] = structs.replace(parcel, due=due, tries=0, parked=False)

    def _waiting(self, tenant: str | None, parked: bool | None) -> list[Parcel]:
        found = [
            parcel
            for parcel in self._state.outbox.values()
            if tenant in (None, parcel.tenant) and parked in (None, parcel.parked)
        ]
        return sorted(found, key=lambda parcel: (parcel.due, parcel.id))

    # Leases

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Acquire the lease with a higher fence than any before, or raise `Busy` while another is live."""
        with self._state.lock:
            kept = self._state.kept(at)
            if kept.row.lease_until > now:
                raise busy(at.session, kept.row.holder, kept.row.lease_until - now)
            fence = kept.row.fence + 1
            kept.row = structs.replace(kept.row, fence=fence, lease_until=until, holder=holder)
            return Lease(fence=fence, until=until)

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Extend a lease, or raise `Fenced` if another worker took over."""
        with self._state.lock:
            kept = self._state.kept(at)
            if kept.row.fence != lease.fence:
                raise Fenced(f"the lease of session {at.session} was taken over; open the session again")
            kept.row = structs.replace(kept.row, lease_until=until)
            return Lease(fence=lease.fence, until=until)

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Release a lease, which counts as activity up to now; do nothing if another worker took over."""
        with self._state.lock:
            kept = self._state.sessions.get(at)
            if kept and kept.row.fence == lease.fence:
                active = max(kept.row.active, min(kept.row.lease_until, now))
                kept.row = structs.replace(kept.row, lease_until=0, holder="", active=active)

    # Health

    async def time(self) -> int | None:
        """Return None: the only clock is the caller's."""
        return None

    async def facts(self) -> dict[str, str]:
        """Return human-readable versions, settings and sizes."""
        with self._state.lock:
            sessions = list(self._state.sessions.values())
        entries = sum(len(kept.by_id) for kept in sessions)
        return {"store": "memory", "sessions": str(len(sessions)), "entries": str(entries)}

    async def scrub(self) -> bool:
        """Do nothing: there are no files."""
        return True

    async def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check token counts if ``recount`` is given; nothing else in memory can be damaged."""
        with self._state.lock:
            sessions = list(self._state.sessions.values()) if recount else []
            found = [one for kept in sessions if recount for one in kept.recount(recount, repair=repair)]
        for finding in found:
            yield finding


def _forked(kept: StoredSession, change: Change) -> BranchRow | None:
    fork = change.fork
    if fork is None:
        return None
    if fork.parent is not None and not 0 <= fork.seq <= kept.tip(fork.parent):
        raise NotFound(f"branch {fork.parent} of session {kept.row.id} has no entry {fork.seq}")
    return BranchRow(
        id=len(kept.branches) + 1,
        parent=fork.parent,
        fork_seq=0 if fork.parent is None else fork.seq,
        created=change.now,
        name=fork.name,
        operation=fork.operation,
        former=kept.row.branch,
    )


def _matches(row: SessionRow, which: SessionFilter) -> bool:
    return (
        which.user in (None, row.user)
        and (which.tag is None or which.tag in row.tags)
        and (which.since is None or row.active >= which.since)
        and (which.until is None or row.active < which.until)
        and which.live in (None, row.ended is None)
    )


async def connect(url: str) -> MemoryStore:
    """Open a new store for ``memory:``, or the store that this process shares as NAME for ``memory:NAME``."""
    name = url.removeprefix("memory:").strip("/")
    if "?" in name or "#" in name:
        raise InputError(f"{url!r} has options, but the memory store takes none")
    if name in _named and _named[name].owner.is_elsewhere:
        del _named[name]  # a forked child shares a store of its own
    return _named.setdefault(name, MemoryStore()) if name else MemoryStore()
