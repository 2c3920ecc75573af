"""What a store is: four small ports over one append-only log, and the values that cross them.

A session is a tree of branches with a head; every write to it is one `Change`, taken whole or not at
all. The checks of a change, and their order, are in `admission`; a store runs them inside the
transaction that writes. Times are milliseconds of the caller's clock: a wrong clock may make a lease
end early or late, never let two writers in, since fences are numbers and not times.

A store keeps bytes and does not look into them. It need not know what a cut or a summary is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from ..errors import InputError

__all__ = [
    "MESSAGE",
    "Address",
    "Branch",
    "Change",
    "Directory",
    "Durability",
    "Filter",
    "Finding",
    "Fork",
    "Health",
    "Hit",
    "Key",
    "Lease",
    "Leases",
    "Log",
    "Outbox",
    "Parcel",
    "Position",
    "Receipt",
    "Record",
    "Removed",
    "Row",
    "SessionRow",
    "Span",
    "Store",
]

MESSAGE = "message"
"""The kind of entry that makes a session's version grow; all other kinds leave it alone."""

Durability = Literal["memory", "best_effort", "fsync"]
"""What an acknowledgement means: kept while the process lives, kept unless the power fails, kept."""


class Address(NamedTuple):
    """Whose session it is, and which."""

    tenant: str
    session: str


class Position(NamedTuple):
    """A place in the log: the last entry of a path. Sequence numbers go on over a fork."""

    branch: int
    seq: int


class Span(NamedTuple):
    """A run of entries on one branch, both ends included."""

    branch: int
    first: int
    last: int


class Record(Struct, frozen=True, kw_only=True):
    """An entry to be written: its body as UTF-8 JSON, its tokens as sent, its words for search.

    Words are of letters, digits and underscores, in lower case, as `holdfast.words` gives them.
    """

    id: str
    kind: str
    body: bytes
    tokens: int = 0
    words: tuple[str, ...] = ()


class Row(Struct, frozen=True, kw_only=True):
    """An entry that was written. ``total`` is the running sum of tokens on the path up to here.

    A row whose bytes no longer match their checksum is given as ``damaged``, with what is left of it.
    """

    branch: int
    seq: int
    id: str
    kind: str
    body: bytes
    tokens: int
    total: int
    damaged: bool = False


class Branch(Struct, frozen=True, kw_only=True):
    """A branch starts behind ``fork_seq`` of its parent; a root has no parent.

    ``operation`` says what made it and ``former`` which branch was the head before, so that it can
    be undone by selecting that one.
    """

    id: int
    parent: int | None
    fork_seq: int
    created: int
    name: str = ""
    operation: str = ""
    former: int | None = None


class SessionRow(Struct, frozen=True, kw_only=True):
    """Everything of a session but its log."""

    tenant: str
    id: str
    user: str | None
    title: str
    tags: tuple[str, ...]
    counter: str
    meta: dict[str, Any]
    created: int
    active: int
    idle: int = 0  # milliseconds after which it ends by itself; 0 is never
    epoch: int = 1
    branch: int = 1
    seq: int = 0
    total: int = 0
    version: int = 0
    fence: int = 0
    lease_until: int = 0
    holder: str = ""
    ended: int | None = None
    reason: str = ""

    @property
    def address(self) -> Address:
        """Where the session is found."""
        return Address(self.tenant, self.id)

    @property
    def head(self) -> Position:
        """The last entry of the path."""
        return Position(self.branch, self.seq)

    @property
    def expires(self) -> int | None:
        """When it ends by itself, if nothing is said until then."""
        return self.active + self.idle if self.idle and self.ended is None else None


class Key(NamedTuple):
    """An idempotency key, and the digest of what was asked under it."""

    name: str
    digest: bytes


class Fork(Struct, frozen=True, kw_only=True):
    """A branch to be made and selected: behind ``seq`` of the parent, or a new root."""

    parent: int | None
    seq: int
    name: str = ""
    operation: str


class Parcel(Struct, frozen=True, kw_only=True):
    """Something to be delivered to the memory engine, once in effect: the id tells it from others."""

    id: str
    tenant: str
    session: str
    kind: str
    body: bytes
    due: int
    tries: int = 0
    error: str = ""
    parked: bool = False


class Change(Struct, frozen=True, kw_only=True):
    """One write to one session, all of it or nothing.

    What it asks is checked first (epoch, key, fence, expected version and head); then a branch is
    made or selected, the records are appended to the head, and the parcels go to the outbox.
    ``next_epoch`` ends the epoch and begins the next; ``end`` ends it and begins none.
    """

    at: Address
    now: int
    epoch: int | None = None
    key: Key | None = None
    fence: int | None = None
    expected_version: int | None = None
    expected_head: Position | None = None
    fork: Fork | None = None
    select: int | None = None
    records: tuple[Record, ...] = ()
    parcels: tuple[Parcel, ...] = ()
    next_epoch: bool = False
    end: str | None = None

    def __post_init__(self) -> None:
        if self.fork is not None and self.select is not None:
            raise InputError("a change makes a branch or selects one, not both")
        if self.next_epoch and self.end is not None:
            raise InputError("a change begins the next epoch or ends this one for good, not both")

    @property
    def moves_path(self) -> bool:
        """Whether the path of messages is another one afterwards."""
        branches = self.fork is not None or self.select is not None
        return branches or any(record.kind == MESSAGE for record in self.records)

    @property
    def is_activity(self) -> bool:
        """Whether the session counts as used: only a message does."""
        return self.next_epoch or any(record.kind == MESSAGE for record in self.records)


class Receipt(Struct, frozen=True, kw_only=True):
    """What a change came to: where its records stand, and the session's version after it."""

    epoch: int
    version: int
    branch: int
    first: int  # of the records; one more than `last` where there were none
    last: int
    repeated: bool = False  # the key was known: this is what the first request came to

    @property
    def head(self) -> Position:
        """The last entry of the path after the change."""
        return Position(self.branch, self.last)


class Lease(Struct, frozen=True, kw_only=True):
    """The right to write alone until a moment; the fence tells a later holder from an earlier one."""

    fence: int
    until: int


class Filter(Struct, frozen=True, kw_only=True):
    """Which sessions are listed; everything that is given must hold."""

    user: str | None = None
    tag: str | None = None
    since: int | None = None  # active at or after
    until: int | None = None  # active before
    live: bool | None = None  # not ended, or ended


class Hit(Struct, frozen=True, kw_only=True):
    """An entry that holds all the words, and the mark behind which the search goes on."""

    session: str
    row: Row
    mark: int


class Removed(Struct, frozen=True, kw_only=True):
    """How much was deleted with a session."""

    entries: int
    branches: int
    keys: int
    parcels: int


class Finding(Struct, frozen=True, kw_only=True):
    """Something that a check of a store found, and what was done about it."""

    tenant: str = ""
    session: str = ""
    branch: int = 0
    seq: int = 0
    id: str = ""
    fault: str
    done: str = ""


class Log(Protocol):
    """Append to sessions, and read them."""

    async def commit(self, change: Change) -> Receipt:
        """Take a change whole, or raise the first check that fails and take nothing."""
        ...

    async def read(
        self, at: Address, span: Span, *, limit: int | None = None, newest: bool = False
    ) -> list[Row]:
        """Give a run of entries in order; with a limit the first ones, or the newest."""
        ...

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Give the entries with these ids, those that there are, in the order of the log."""
        ...

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Give the newest entry of each kind on a path, whose newest span comes first."""
        ...

    async def branches(self, at: Address) -> list[Branch]:
        """Give all branches of a session in the order of their making."""
        ...

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Give the entries that hold all the words, newest first, from behind a mark on."""
        ...


class Directory(Protocol):
    """Which sessions there are."""

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        ...

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        ...

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        ...

    async def update(
        self,
        at: Address,
        *,
        title: str | None = None,
        tags: Sequence[str] | None = None,
        meta: dict[str, Any] | None = None,
        idle: int | None = None,
    ) -> SessionRow:
        """Change what is given and leave the rest."""
        ...

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Give sessions that were left idle for longer than they may be and that nobody holds."""
        ...

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        ...


class Outbox(Protocol):
    """What is to be delivered; a change puts parcels in."""

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        ...

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        ...

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        ...

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        ...

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        ...


class Leases(Protocol):
    """Who may write."""

    async def acquire(self, at: Address, *, holder: str, until: int, now: int) -> Lease:
        """Take the lease with a fence higher than any before, or raise `Busy` while another's is live."""
        ...

    async def renew(self, at: Address, lease: Lease, *, until: int) -> Lease:
        """Hold on for longer, or raise `Fenced` where somebody took over."""
        ...

    async def release(self, at: Address, lease: Lease) -> None:
        """Give the lease back; nothing happens where somebody took over."""
        ...


class Health(Protocol):
    """What a store says of itself."""

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means here."""
        ...

    async def facts(self) -> dict[str, str]:
        """Tell versions, settings and sizes, for people."""
        ...

    async def scrub(self) -> bool:
        """Overwrite what deleted sessions left in files; tell whether no byte is left in them."""
        ...

    def verify(self, *, repair: bool) -> AsyncIterator[Finding]:
        """Walk everything, check order and checksums, and set damaged records aside if asked to."""
        ...


class Store(Log, Directory, Outbox, Leases, Health, Protocol):
    """All of it, behind one URL."""

    async def close(self) -> None:
        """Finish what was begun and let go of files and connections."""
        ...
