"""The values that cross the ports of a store: sessions, branches, rows, and the change that writes them.

A session is a tree of branches with a head. Every write to it is one `Change`, which is applied as a whole or
not at all. A store keeps bytes and does not interpret them: it does not know what a cut or a summary is.

Values that exist in thousands are not tracked by the garbage collector (`gc=False`): none is part of a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from ..errors import InputError

__all__ = [
    "FOREVER",
    "KEY_LIFE",
    "MESSAGE",
    "Address",
    "BranchRow",
    "Change",
    "Durability",
    "FeedItem",
    "FeedPage",
    "Finding",
    "Fork",
    "Hit",
    "Key",
    "Lease",
    "Order",
    "PageMark",
    "Parcel",
    "Position",
    "Receipt",
    "Record",
    "Recount",
    "Removed",
    "Row",
    "SessionFilter",
    "SessionRow",
    "Span",
    "feed_number",
]

MESSAGE = "message"
"""The kind of entry that increases a session's version; other kinds do not."""

FOREVER = (1 << 53) - 1
"""The end of a lease that never expires: the largest integer that every store and JSON reader keeps."""

Recount = Callable[[str, str, bytes, int], int | None]
"""Returns the token count of an entry (counter, kind, body, stored count) if the stored count is wrong."""

Durability = Literal["memory", "best_effort", "fsync"]
"""What an acknowledged write survives.

``memory``: not even the end of the process; ``best_effort``: anything but a server failure; ``fsync``:
everything.
"""


Order = Literal["created", "active"]
"""The time by which a list of sessions is sorted, newest first."""


class Address(NamedTuple):
    """The tenant and the id of a session."""

    tenant: str
    session: str


class Position(NamedTuple):
    """A position in the log: the last entry of a path. Sequence numbers continue across a fork."""

    branch: int
    seq: int


class Span(NamedTuple):
    """Consecutive entries on one branch, both ends included."""

    branch: int
    first: int
    last: int


class PageMark(NamedTuple):
    """Where a page of sessions ended: the sort time and the id of its last session."""

    moment: int
    id: str


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """An entry to write: its body as UTF-8 JSON, and its token count as sent.

    Search finds a message by the words that `turnstate.search_terms.entry_words` returns for its body.
    """

    id: str
    kind: str
    body: bytes
    tokens: int = 0


class Row(Struct, frozen=True, kw_only=True, gc=False):
    """A written entry. ``total`` is the running sum of tokens on the path up to here.

    A row is ``damaged`` if its bytes do not match their checksum; it then holds whatever is left. It is
    ``recovered`` if an index should have led to it, but only a table scan found it.
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


class BranchRow(Struct, frozen=True, kw_only=True):
    """A branch starts after ``fork_seq`` of its parent; a root has no parent.

    ``operation`` names the operation that created it; ``former`` is the branch that was the head before,
    which undo selects.
    """

    id: int
    parent: int | None
    fork_seq: int
    created: int
    name: str = ""
    operation: str = ""
    former: int | None = None


class SessionRow(Struct, frozen=True, kw_only=True, gc=False):
    """Everything about a session except its log."""

    tenant: str
    id: str
    user: str | None
    title: str
    tags: tuple[str, ...]
    counter: str
    meta: dict[str, Any]
    created: int
    active: int
    idle: int = 0  # milliseconds of inactivity after which it ends; 0 means never
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
        """The address of the session."""
        return Address(self.tenant, self.id)

    @property
    def head(self) -> Position:
        """The last entry of the path."""
        return Position(self.branch, self.seq)

    @property
    def expires(self) -> int | None:
        """The time at which the session ends if no message is appended before; None if it does not expire."""
        return self.active + self.idle if self.idle and self.ended is None else None

    def mark(self, order: Order = "created") -> PageMark:
        """Return the mark after which a list in this order continues."""
        return PageMark(self.created if order == "created" else self.active, self.id)

    def is_idle(self, now: int) -> bool:
        """Return True if the session has been idle for too long; a lease counts as activity until it ends."""
        expires = self.expires
        return expires is not None and max(expires, self.lease_until + self.idle) <= now


class Key(NamedTuple):
    """An idempotency key, and the digest of its request."""

    name: str
    digest: bytes


class Fork(Struct, frozen=True, kw_only=True):
    """A branch to create and select: after ``seq`` of the parent, or a new root."""

    parent: int | None
    seq: int
    name: str = ""
    operation: str


class Parcel(Struct, frozen=True, kw_only=True):
    """A delivery to the memory engine, which ignores ids that it has already seen."""

    id: str
    tenant: str
    session: str
    kind: str
    body: bytes
    due: int
    tries: int = 0
    error: str = ""
    parked: bool = False


KEY_LIFE = 7 * 24 * 3600 * 1000
"""Milliseconds for which an idempotency key is remembered, or longer in a store that is seldom used."""


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """One write to one session, applied as a whole or not at all.

    Its conditions are checked first: creation, epoch, key, fence, expected version and head. Then a branch
    is created or selected, the records are appended to the head, and the parcels are added to the outbox.
    ``created`` is the creation time of the intended session, since another one may have its id by now.
    ``next_epoch`` ends the epoch and begins the next one even if a lease is held: it raises the fence.
    ``end`` ends the epoch without beginning another; a lease blocks it like any other write.
    ``trusts_clock`` is False if the clock that ``now`` is from may have jumped: then no key is too old.
    """

    at: Address
    now: int
    created: int | None = None
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
    trusts_clock: bool = True

    def __post_init__(self) -> None:
        if self.fork is not None and self.select is not None:
            raise InputError("a change creates a branch or selects one, not both")
        if self.next_epoch and self.end is not None:
            raise InputError("a change begins the next epoch or ends this one without a next one, not both")

    @property
    def key_life(self) -> int:
        """Milliseconds after which a key is forgotten: never, if the clock cannot be trusted."""
        return KEY_LIFE if self.trusts_clock else FOREVER

    @property
    def moves_path(self) -> bool:
        """True if the change alters the path of messages."""
        return self.fork is not None or self.select is not None or self._has_message

    @property
    def is_activity(self) -> bool:
        """True if the change counts as activity: only messages and a new epoch do."""
        return self.next_epoch or self._has_message

    @property
    def _has_message(self) -> bool:
        records = self.records  # usually a single message
        return bool(records) and (records[0].kind == MESSAGE or any(one.kind == MESSAGE for one in records))


class Receipt(Struct, frozen=True, kw_only=True, gc=False):
    """The result of a change: the sequence numbers of its records, and the session's new version."""

    epoch: int
    version: int
    branch: int
    first: int  # number of the first record; `last` + 1 if there are none
    last: int
    repeated: bool = False  # the key is known, and this is the receipt of the first request
    ids: dict[str, str] = field(default_factory=dict)  # ids of messages and calls: given to stored

    @property
    def head(self) -> Position:
        """The last entry of the path after the change."""
        return Position(self.branch, self.last)


class Lease(Struct, frozen=True, kw_only=True):
    """The exclusive right to write until a given time; each later holder has a higher fence."""

    fence: int
    until: int


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list: those that match every field that is set."""

    user: str | None = None
    tag: str | None = None
    since: int | None = None  # active at or after
    until: int | None = None  # active before
    live: bool | None = None  # not ended, or ended


class Hit(Struct, frozen=True, kw_only=True):
    """An entry that contains all the words, and the mark after which the search continues."""

    session: str
    row: Row
    mark: int


class FeedItem(Struct, frozen=True, kw_only=True):
    """An entry that was written to some session; the feed continues after its cursor."""

    session: str
    row: Row
    cursor: str


class FeedPage(NamedTuple):
    """Entries in feed order, and the cursor to continue from, which is set even if there are no entries."""

    items: list[FeedItem]
    cursor: str


def feed_number(cursor: str) -> int:
    """Return the number that most stores use as a cursor; raise `InputError` if it is not a number."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InputError(f"{cursor!r:.60} is not a cursor of this store; pass the cursor of an entry")
    return int(cursor or 0)


class Removed(Struct, frozen=True, kw_only=True):
    """How much was deleted with a session."""

    entries: int
    branches: int
    keys: int
    parcels: int


class Finding(Struct, frozen=True, kw_only=True):
    """A fault that verification found, and what was done about it."""

    tenant: str = ""
    session: str = ""
    branch: int = 0
    seq: int = 0
    id: str = ""
    fault: str
    done: str = ""
