"""The data of a memory store: sessions, parcels, and an index of words.

Every operation runs under one lock and never awaits while it holds it, so each is a transaction, even if
several threads share a store. Writers compute everything first and change the state last: an operation that
raises has changed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cached_property

from msgspec import structs

from ...codec import decode_entry
from ...entry import ModelChange
from ...errors import AlreadyExists, NotFound
from ...search_terms import entry_words
from ..admission import KnownKey
from ..values import (
    Address,
    BranchRow,
    Change,
    Finding,
    Key,
    Parcel,
    Receipt,
    Record,
    Recount,
    Row,
    SessionRow,
    Span,
)


class Indexed:
    """An entry and its words; the index has all entries in the order in which they were written."""

    def __init__(self, at: Address, row: Row) -> None:
        self.at, self.row = at, row

    @property
    def is_cut(self) -> bool:
        """True if the entry has been split into words."""
        return "words" in self.__dict__

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the entry, which is split when it is first searched."""
        return frozenset(entry_words(self.row.kind, self.row.body))


class StoredSession:
    """One session: its row, its branches, the rows of each branch, and the keys of its requests."""

    def __init__(self, row: SessionRow) -> None:
        self.row = row
        self.branches = {1: BranchRow(id=1, parent=None, fork_seq=0, created=row.created, operation="create")}
        self.rows: dict[int, list[Row]] = {1: []}
        self.by_id: dict[str, Row] = {}
        self._keys: dict[str, KnownKey] = {}

    def slice(self, span: Span) -> list[Row]:
        """Return the rows of a span that exist."""
        branch = self.branches.get(span.branch)
        if branch is None:
            return []
        start = max(0, span.first - branch.fork_seq - 1)
        return self.rows[span.branch][start : max(0, span.last - branch.fork_seq)]

    def total(self, branch: int | None, seq: int) -> int:
        """Return the running sum of tokens at a position of a path."""
        while branch is not None:
            known = self.branches[branch]
            if seq > known.fork_seq:
                return self.rows[branch][seq - known.fork_seq - 1].total
            branch = known.parent
        return 0

    def tip(self, branch: int) -> int:
        """Return the last sequence number of a branch, or raise `NotFound`."""
        if branch not in self.branches:
            raise NotFound(f"session {self.row.id} has no branch {branch}")
        return self.branches[branch].fork_seq + len(self.rows[branch])

    def recount(self, recount: Recount, *, repair: bool) -> Iterator[Finding]:
        """Compare token counts with the text; with ``repair``, correct them and the totals after them."""
        done = "its tokens are counted again" if repair else ""
        for id, branch in self.branches.items():
            total = self.total(branch.parent, branch.fork_seq)
            counter = self._counter(branch.parent, branch.fork_seq)
            for place, row in enumerate(self.rows[id]):
                counter = _counter_after(row) or counter
                right = recount(counter, row.kind, row.body, row.tokens)
                if right is not None:
                    fault = f"its token count is {row.tokens:,}, and its text has {right:,} tokens"
                    yield Finding(
                        tenant=self.row.tenant,
                        session=self.row.id,
                        branch=id,
                        seq=row.seq,
                        id=row.id,
                        fault=fault,
                        done=done,
                    )
                if repair:
                    tokens = row.tokens if right is None else right
                    total += tokens
                    self.rows[id][place] = self.by_id[row.id] = structs.replace(
                        row, tokens=tokens, total=total
                    )
        if repair:
            self.row = structs.replace(self.row, total=self.total(self.row.branch, self.row.seq))

    def _counter(self, branch: int | None, seq: int) -> str:
        """Return the counter in force at a position of a path, set by the newest model change before it."""
        while branch is not None:
            known = self.branches[branch]
            own = reversed(self.rows[branch][: max(0, seq - known.fork_seq)])
            if counter := next((found for row in own if (found := _counter_after(row))), None):
                return counter
            branch, seq = known.parent, min(seq, known.fork_seq)
        return self.row.counter

    def check_new(self, records: Iterable[Record]) -> None:
        """Raise `AlreadyExists` if the log or another of the records already uses an id."""
        fresh = set[str]()
        for record in records:
            if record.id in self.by_id or record.id in fresh:
                raise AlreadyExists(f"session {self.row.id} already has an entry {record.id}")
            fresh.add(record.id)

    def known(self, change: Change) -> KnownKey | None:
        """Return what the key of a change was used for; None if it is new or too old."""
        known = self._keys.get(change.key.name) if change.key else None
        return known if known and known.is_remembered(change) else None

    def remember(self, key: Key, receipt: Receipt, change: Change) -> None:
        """Keep the receipt of a request, and forget keys that have expired."""
        self._keys.pop(key.name, None)
        self._keys[key.name] = KnownKey(key.digest, receipt, change.now)
        while not self._keys[oldest := next(iter(self._keys))].is_remembered(change):
            del self._keys[oldest]

    @property
    def keys(self) -> int:
        """The number of keys that are remembered."""
        return len(self._keys)


class MemoryTables:
    """All data of a store, and the lock under which it is read and changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[Address, StoredSession] = {}
        self.outbox: dict[str, Parcel] = {}
        self.index: list[Indexed | None] = []  # a removed entry becomes None to keep marks valid

    def kept(self, at: Address) -> StoredSession:
        """Return a session, or raise `NotFound`."""
        try:
            return self.sessions[at]
        except KeyError:
            raise NotFound(f"there is no session {at.session}") from None

    def append(self, kept: StoredSession, rows: Iterable[Row]) -> None:
        """Append rows to their branch and to the index."""
        for row in rows:
            kept.rows[row.branch].append(row)
            kept.by_id[row.id] = row
            self.index.append(Indexed(kept.row.address, row))


def _counter_after(row: Row) -> str | None:
    """Return the counter of the model that an entry sets, or None if it sets no model."""
    entry = decode_entry(row.kind, row.body) if row.kind == "model" else None
    return entry.counter if isinstance(entry, ModelChange) else None


def written(records: Iterable[Record], *, branch: int, seq: int, total: int) -> list[Row]:
    """Return records as the rows that follow a position."""
    rows = list[Row]()
    for record in records:
        seq, total = seq + 1, total + record.tokens
        row = Row(
            branch=branch,
            seq=seq,
            id=record.id,
            kind=record.kind,
            body=record.body,
            tokens=record.tokens,
            total=total,
        )
        rows.append(row)
    return rows


def private(row: SessionRow) -> SessionRow:
    """Return a row with its own copy of meta, so callers may modify it."""
    return structs.replace(row, meta=deepcopy(row.meta))
