"""The ports of a store: six small protocols over one append-only log.

The values that cross them are in `values`. The checks that a change must pass, and their order, are in
`admission`; a store runs them inside the transaction that writes. Times are milliseconds of the caller's
clock. A wrong clock may end a lease early or late, but never lets two writers in: fences are numbers, not
times.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from .values import (
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

__all__ = [
    "Directory",
    "Feed",
    "FindsSessions",
    "GivesNotices",
    "Health",
    "Leases",
    "Log",
    "OnDisk",
    "Outbox",
    "Reads",
    "ReadsAhead",
    "ReadsAtOnce",
    "ReportsLosses",
    "Store",
]

T = TypeVar("T")


@runtime_checkable
class OnDisk(Protocol):
    """A store or a memory engine that keeps files on this machine; checkpoints leave these alone."""

    @property
    def files(self) -> Sequence[Path]:
        """The absolute paths of its files and folders."""
        ...


class Reads(Protocol):
    """Read the log of a session."""

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return the entries of a span in order; with a limit, only the first ones or the newest.

        With ``kinds``, read only entries of these kinds; messages are never among them.
        """
        ...

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries that have one of these ids, in the order of the log."""
        ...

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; ``spans`` starts with the newest."""
        ...

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        ...


class Log(Reads, Protocol):
    """Append to sessions, and read them."""

    async def commit(self, change: Change) -> Receipt:
        """Apply a change as a whole, or raise the first check that fails and change nothing."""
        ...

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
        ...


@runtime_checkable
class ReadsAtOnce(Protocol):
    """A store that can make several reads in one snapshot, without a round trip for each."""

    async def at_once(
        self, at: Address, job: Callable[[SessionRow, Reads], Awaitable[T]], *, small: bool = False
    ) -> T:
        """Run a job on a session and its log, and return its result.

        The job runs in a thread that has no event loop, so it must await nothing but the log that it gets. A
        ``small`` job may be tried in the thread of the caller's loop first.
        """
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A remote store that reads a session and the rows that are usually needed in one round trip."""

    async def ahead(self, at: Address, kinds: Sequence[str]) -> tuple[SessionRow, Reads]:
        """Return a session, and a log that already has its newest entries and the newest of each kind."""
        ...


class Feed(Protocol):
    """Entries in the order in which they were written, for consumers that follow sessions by polling.

    Every entry appears exactly once and never late: no new entry appears before a cursor that was returned.
    """

    async def since(self, at: Address, id: str | None, *, limit: int) -> list[Row]:
        """Return the entries of a session, on all branches, that were written after a given one.

        Without an id, start with the first entry. Raise `NotFound` if there is no such entry.
        """
        ...

    async def feed(self, tenant: str, cursor: str, *, limit: int) -> FeedPage:
        """Return the entries of all sessions of a tenant after a cursor; an empty one means the beginning.

        Entries of one session are in order; entries of different sessions need not be. Raise `InputError` if
        the cursor does not belong to this store.
        """
        ...

    async def feed_end(self, tenant: str) -> str:
        """Return the cursor after all entries of a tenant that exist now."""
        ...


class Directory(Protocol):
    """The sessions of a store."""

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Create a session with its root branch and first entries, or raise `AlreadyExists`."""
        ...

    async def get(self, at: Address) -> SessionRow:
        """Return a session, or raise `NotFound`."""
        ...

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
        ...

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
        ...

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that have been idle for too long, with neither a message nor a lease."""
        ...

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that belongs to it."""
        ...


class Outbox(Protocol):
    """Parcels that wait for delivery; a change adds them."""

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due; no one else gets them before ``until``. Each claim counts as a try."""
        ...

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        ...

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Record why a delivery failed and when to try again; without a time the parcel is parked."""
        ...

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Return waiting parcels, the oldest due first."""
        ...

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again as if it were new; raise `NotFound` if no such parcel is parked."""
        ...


class Leases(Protocol):
    """The right of one worker to write to a session."""

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Acquire the lease with a higher fence than any before, or raise `Busy` while another is live."""
        ...

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Extend a lease, or raise `Fenced` if another worker took over."""
        ...

    async def release(self, at: Address, lease: Lease, *, now: int) -> None:
        """Release a lease, which counts as activity up to now; do nothing if another worker took over."""
        ...


class Health(Protocol):
    """Durability, facts and verification of a store."""

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        ...

    async def time(self) -> int | None:
        """Return the store's own time in milliseconds, or None if it relies on the caller's clock."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return human-readable versions, settings and sizes."""
        ...

    async def scrub(self) -> bool:
        """Overwrite the remains of deleted sessions in the files; return True if none are left."""
        ...

    def verify(self, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
        """Check everything, and with ``repair`` move damaged records aside.

        With ``recount``, also compare token counts with the text. A store that cannot be repaired in place
        raises `StoreError`, which says what to do instead, and offers `FindsSessions` to an export.
        """
        ...


@runtime_checkable
class FindsSessions(Protocol):
    """A store that can find its sessions without the lists by which it usually does, which may be damaged."""

    def addresses(self) -> AsyncIterator[Address]:
        """Yield the addresses of all sessions of all tenants, in any order."""
        ...


@runtime_checkable
class ReportsLosses(Protocol):
    """A store that notices when its server lost acknowledged writes in a power cut or a failover."""

    def lost(self, at: Address) -> str:
        """Return a human-readable description of a session's known losses, empty if there are none."""
        ...


@runtime_checkable
class GivesNotices(Protocol):
    """A store that tells users about trouble with its files which it could mend."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened since the store was opened, each in one sentence."""
        ...


class Store(Log, Feed, Directory, Outbox, Leases, Health, Protocol):
    """All ports of one store."""

    async def close(self) -> None:
        """Finish pending work and close files and connections."""
        ...
