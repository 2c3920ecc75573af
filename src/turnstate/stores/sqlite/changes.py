"""Changes to sessions in SQLite: each function runs inside a transaction of the connection that it is given.

Most changes only append to the head. In a batch, these share statements: all are checked in Python first,
against sessions that need not be read again while no one else writes (`KnownSessions`); then one statement
writes all entries and another all sessions. A change that forks, selects or ends is applied alone. So is
every change of a batch in which an id already exists or a key appears twice: only then is it known which one
to refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import apsw
from msgspec import structs

from ...errors import AlreadyExists, NotFound, StoreDamaged, TurnstateError
from ..admission import admitted, advanced, appended
from ..values import (
    MESSAGE,
    Address,
    Change,
    Fork,
    Position,
    Receipt,
    Record,
    Removed,
    SessionRow,
    Span,
)
from .connection import Connection, connect
from .faults import UNUSABLE, unusable
from .keys import forget_keys, keep_key, known_key
from .queries import SQL
from .rows import (
    SessionPlace,
    advance_columns,
    entry_values,
    last_branch,
    longer_than_promised,
    marks,
    session_place,
    session_row,
    single_value,
)
from .salvage import rows_around

Job = Callable[[Connection], Any]

DELETION_OVERHEAD = 256_000
"""Bytes in the WAL for the index pages that deleting even a short session changes."""

SCRUB_SECONDS, SCRUB_PAUSE = 3.0, 0.02
"""How long to try to empty the WAL, which cannot be done while another process reads, and the pause."""

SCRUB_WAIT_MS = 100
"""How long one try waits for others; meanwhile, no process can write."""

_DROPS = ("words", "entries", "damaged", "branches", "keys", "tags", "parcels", "session")


def add_entries(
    db: apsw.Connection, key: int, session: str, head: Position, total: int, records: Sequence[Record]
) -> None:
    """Write entries after a position of a session; ``key`` is its number, ``session`` its id."""
    seq = head.seq
    for record in records:
        seq, total = seq + 1, total + record.tokens
        try:
            db.execute(SQL["add_entry"], entry_values(key, head.branch, seq, total, record))
        except apsw.ConstraintError:
            raise AlreadyExists(f"session {session} already has an entry {record.id}") from None


class KnownSessions:
    """Sessions as this connection left them; they need not be read again while no other connection writes."""

    MOST = 10_000

    def __init__(self) -> None:
        self._data_version = -1
        self._known = dict[Address, tuple[int, SessionRow]]()

    def begin(self, db: apsw.Connection) -> None:
        """Forget everything if another commit was made since `committed`; call this in a transaction."""
        if db.data_version() != self._data_version or len(self._known) > self.MOST:
            self._known = {}

    def committed(self, db: apsw.Connection) -> None:
        """Note the version of the file, which every commit of any connection changes."""
        self._data_version = db.data_version()

    def session(self, db: apsw.Connection, at: Address) -> tuple[int, SessionRow]:
        """Return a session with its integer key, or raise `NotFound`."""
        return self._known.get(at) or session_row(db, at)

    def moved(self, at: Address, key: int, row: SessionRow) -> None:
        """Remember a session as it is after a change."""
        self._known[at] = key, row

    def forget(self) -> None:
        """Forget everything, since something else was written or a transaction was rolled back."""
        self._known = {}


def run_each(db: Connection, jobs: Sequence[Job]) -> list[Any]:
    """Run jobs in the transaction of a connection; return the result of each, or the error that refused it.

    A refused job affects no other. Nearly all are refused before they have written anything. If one has
    written, all jobs are rolled back and run again, each in a savepoint.
    """
    outcomes: list[Any] = []
    for job in jobs:
        before = db.total_changes()
        outcomes.append(_outcome(db, job))
        if isinstance(outcomes[-1], TurnstateError) and db.total_changes() != before:
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            return [_run_in_savepoint(db, job) for job in jobs]
    return outcomes


def _run_in_savepoint(db: Connection, job: Job) -> Any:
    db.execute("SAVEPOINT job")
    before, outcome = db.total_changes(), _outcome(db, job)
    if isinstance(outcome, TurnstateError) and db.total_changes() != before:
        db.execute("ROLLBACK TO job")
    db.execute("RELEASE job")
    return outcome


def _outcome(db: Connection, job: Job) -> Any:
    try:
        return job(db)
    except TurnstateError as error:
        return error
    except UNUSABLE as error:
        return unusable(error)


def is_plain(change: Change) -> bool:
    """Return True if a change only appends to the head, as nearly all do."""
    return not (
        change.fork is not None
        or change.select is not None
        or change.parcels
        or change.next_epoch
        or change.end is not None
    )


def commit_together(
    db: apsw.Connection, sessions: KnownSessions, changes: Iterable[Change]
) -> list[Receipt | TurnstateError] | None:
    """Apply plain changes, each as a whole or not at all, with one statement for all entries.

    Nothing is written before all are checked. Return None if a key appears twice: the caller must then apply
    each alone. After an SQLite error, such as an id that already exists, it must do so in a new transaction.
    """
    outcomes: list[Receipt | TurnstateError] = []
    entries: list[tuple[Any, ...]] = []
    moved: dict[int, tuple[SessionRow, int]] = {}
    keys: dict[tuple[int, str], tuple[Change, Receipt]] = {}
    for change in changes:
        try:
            key, row = sessions.session(db, change.at)
            if change.key and (key, change.key.name) in keys:
                return None
            if repeated := admitted(row, change, known_key(db, key, change)):
                outcomes.append(repeated)
                continue
        except TurnstateError as error:
            outcomes.append(error)
            continue
        branch, seq, total, summed = row.branch, row.seq, row.total, 0
        for record in change.records:
            seq, total = seq + 1, total + record.tokens
            summed += 0 if record.kind == MESSAGE else seq
            entries.append(entry_values(key, branch, seq, total, record))
        after = appended(row, change, seq=seq, total=total)
        sessions.moved(change.at, key, after)
        if known := moved.get(key):
            summed += known[1]
        moved[key] = after, summed
        receipt = Receipt(epoch=row.epoch, version=after.version, branch=branch, first=row.seq + 1, last=seq)
        if change.key:
            keys[key, change.key.name] = change, receipt
        outcomes.append(receipt)
    # Entries first: an id that is taken fails here, before a session promises what it does not have.
    db.executemany(SQL["add_entry"], entries)
    db.executemany(
        SQL["advance_session"], [advance_columns(key, row, marks) for key, (row, marks) in moved.items()]
    )
    for (key, _), (change, receipt) in keys.items():
        keep_key(db, key, change, receipt)
    if keys:
        forget_keys(db, change, len(keys))
    return outcomes


def commit(db: apsw.Connection, change: Change) -> Receipt:
    """Apply a change as a whole, or raise the first check that fails."""
    key, row = session_row(db, change.at)
    if repeated := admitted(row, change, known_key(db, key, change)):
        return repeated
    head, total = _target(db, key, row, change)
    add_entries(db, key, row.id, head, total, change.records)
    after = advanced(row, change, branch=head.branch, seq=head.seq, total=total)
    if head.branch != row.branch:
        db.execute(SQL["leave_branch"], {"key": key, "branch": row.branch, "seq": row.seq})
    db.execute(SQL["advance_session"], advance_columns(key, after, marks(change.records, after=head.seq)))
    for parcel in change.parcels:
        db.execute(SQL["add_parcel"], structs.asdict(parcel))
    receipt = Receipt(
        epoch=after.epoch, version=after.version, branch=after.branch, first=head.seq + 1, last=after.seq
    )
    if change.key:
        keep_key(db, key, change, receipt)
        forget_keys(db, change, 1)
    return receipt


def _target(db: apsw.Connection, key: int, row: SessionRow, change: Change) -> tuple[Position, int]:
    """Return the position after which to write records, and the sum of tokens up to it."""
    if change.fork is not None:
        return _forked(db, key, row, change.fork, change.now)
    if change.select is None or change.select == row.branch:
        return row.head, row.total
    head = Position(change.select, _tip(db, key, row, change.select))
    return head, _total(db, key, row, head)


def _forked(db: apsw.Connection, key: int, row: SessionRow, fork: Fork, now: int) -> tuple[Position, int]:
    if fork.parent is not None and not 0 <= fork.seq <= _tip(db, key, row, fork.parent):
        raise NotFound(f"branch {fork.parent} of session {row.id} has no entry {fork.seq}")
    last = last_branch(db, key, row.branch)
    seq = fork.seq if fork.parent is not None else 0
    total = _total(db, key, row, Position(fork.parent, seq)) if fork.parent is not None else 0
    columns = {"key": key, "id": last + 1, "parent": fork.parent, "fork_seq": seq, "created": now}
    made = {"name": fork.name, "operation": fork.operation, "former": row.branch}
    db.execute(SQL["add_branch"], columns | made)
    return Position(last + 1, seq), total


def _tip(db: apsw.Connection, key: int, row: SessionRow, branch: int) -> int:
    """Return the last sequence number of a branch, or that of its fork if it has no entries."""
    for _, _, tip in db.execute(SQL["branch"], {"key": key, "branch": branch}):
        seq = row.seq if branch == row.branch else int(tip)
        if single_value(db, "goes_beyond", key=key, branch=branch, seq=seq):
            raise longer_than_promised(branch, seq)
        return seq
    raise NotFound(f"session {row.id} has no branch {branch}")


def _total(db: apsw.Connection, key: int, row: SessionRow, at: Position) -> int:
    """Return the sum of tokens at a position of a path, which may be on an earlier branch."""
    branch: int | None = at.branch
    while branch is not None and at.seq > 0:
        parent, fork = _origin(db, key, branch)
        if at.seq > fork:
            for (total,) in db.execute(SQL["total"], {"key": key, "branch": branch, "seq": at.seq}):
                return int(total)
            for found in rows_around(db, SessionPlace(key, *row.head), Span(branch, at.seq, at.seq)):
                if not found.damaged:
                    return found.total
            raise StoreDamaged(f"entry {at.seq} of branch {branch} cannot be read; run `turnstate verify`")
        branch = parent
    return 0


def _origin(db: apsw.Connection, key: int, branch: int) -> tuple[int | None, int]:
    for parent, fork, _ in db.execute(SQL["branch"], {"key": key, "branch": branch}):
        if parent is None or 0 < parent < branch:
            return parent, int(fork)
    raise StoreDamaged(f"branch {branch} of a session has an invalid parent; run `turnstate verify`")


def remove(db: apsw.Connection, at: Address) -> Removed:
    """Delete a session with everything that belongs to it."""
    which = {"key": session_place(db, at).key, **at._asdict()}
    ((entries, branches, keys, parcels),) = db.execute(SQL["counts"], which)
    ((promised, indexed),) = db.execute(SQL["entry_counts"], which)
    # Rows are deleted through indexes: an entry that an index misses would stay in the file.
    if indexed != entries or promised > entries:
        raise StoreDamaged(
            f"an index leads to {min(indexed, entries)} of {max(promised, indexed, entries)} entries of "
            f"session {at.session}; the others would stay; run `turnstate verify --repair`, then delete it"
        )
    for name in _DROPS:
        db.execute(SQL[f"drop_{name}"], which)
    return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)


def deletion_bytes(db: apsw.Connection, at: Address) -> int:
    """Return how many bytes a deletion writes to the WAL, which holds every page that it changes."""
    ((size,),) = db.execute(SQL["size"], session_place(db, at)._asdict())
    return int(size) * 2 + DELETION_OVERHEAD


def scrub(path: str) -> bool:
    """Rewrite index, file and WAL; return False if other processes kept the file busy throughout.

    It has a connection of its own, which waits for locks only briefly.
    """
    deadline = time.monotonic() + SCRUB_SECONDS
    db = connect(path, write=True)
    db.set_busy_timeout(SCRUB_WAIT_MS)
    try:
        while True:
            with suppress(apsw.BusyError, apsw.LockedError), db.writing():  # another process is writing
                db.execute(SQL["optimize_words"])
                db.execute("VACUUM")
                if db.checkpoint("TRUNCATE"):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(SCRUB_PAUSE)
    finally:
        db.close()
