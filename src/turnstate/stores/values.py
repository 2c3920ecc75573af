"""The values that cross the ports of a store: sessions, branches, rows, and the change that writes them.

A session is a tree of branches with a head; every write to it is one `Change`, taken whole or not at
all. A store keeps bytes and does not look into them: it need not know what a cut or a summary is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ..errors import InputError

__all__ = [
    "FOREVER",
    "MESSAGE",
    "Address",
    "Branch",
    "Change",
    "Durability",
    "Filter",
    "Finding",
    "Fork",
    "Hit",
    "Key",
    "Lease",
    "Parcel",
    "Position",
    "Receipt",
    "Record",
    "Recount",
    "Removed",
    "Row",
    "SessionRow",
    "Span",
]

MESSAGE = "message"
"""The kind of entry that makes a session's version grow; all other kinds leave it alone."""

FOREVER = (1 << 53) - 1
"""When a lease ends that never runs out: the largest number that every store and every JSON reader keeps."""

Recount = Callable[[str, str, bytes, int], int | None]
"""Returns the token count of an entry (counter, kind, body, stored count) if the stored count is wrong."""

Durability = Literal["memory", "best_effort", "fsync"]
"""What an acknowledgement means: kept while the process lives, kept unless a server fails, kept."""


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

    Words are of letters, digits and underscores, in lower case, as `turnstate.search_terms` gives them.
    """

    id: str
    kind: str
    body: bytes
    tokens: int = 0
    words: tuple[str, ...] = ()


class Row(Struct, frozen=True, kw_only=True):
    """An entry that was written. ``total`` is the running sum of tokens on the path up to here.

    A row whose bytes no longer match their checksum is given as ``damaged``, with what is left of it. One
    that an index should lead to and only a scan of the table found is ``recovered``.
    """

    branch: int
    seq: int
    id: str
    kind: str
    body: bytes
    tokens: int
    total: int
    damaged: bool = False
    recovered: bool = False


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

    def is_idle(self, now: int) -> bool:
        """Return whether it was left alone for too long; a lease that is live, or ended lately, is use."""
        expires = self.expires
        return expires is not None and max(expires, self.lease_until + self.idle) <= now


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
    ``next_epoch`` ends the epoch and begins the next, whoever holds a lease: it raises the fence. ``end``
    ends the epoch and begins none, and waits for a lease like any other write.
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
