"""The checks that a change must pass, in order, and the session after the change.

The order is session, epoch, key, fence, expected version, head; the first check that fails raises. A known
key with the same digest returns the receipt of the first request before fence and version are checked, so a
retry is safe no matter what has happened since. A change that begins the next epoch skips the fence check and
raises the fence, so a worker that holds a lease on the ended epoch can no longer write.

Everything here is pure. Stores that check in Python call it inside their transaction; for stores that check
on a server, the contract suite proves the same order.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from ..errors import Busy, Conflict, EpochEnded, Fenced, KeyReused
from .values import Change, Receipt, SessionRow


class KnownKey(Struct, frozen=True):
    """A used key, with the digest of its request and the receipt."""

    digest: bytes
    receipt: Receipt
    created: int

    def is_remembered(self, change: Change) -> bool:
        """Return True unless the key is too old for this change."""
        return change.now - self.created < change.key_life


def admitted(row: SessionRow, change: Change, known: KnownKey | None) -> Receipt | None:
    """Raise the error of the first check that fails; return the first receipt if this is a repeat.

    ``known`` is None if the key is too old: a server decides that with its own clock.
    """
    _check_epoch(row, change)
    if change.key and known:
        if known.digest != change.key.digest:
            raise KeyReused(f"the key {change.key.name!r} was used for another request; use a new key")
        return structs.replace(known.receipt, repeated=True)
    _check_fence(row, change)
    _check_expectations(row, change)
    return None


def advanced(row: SessionRow, change: Change, *, branch: int, seq: int, total: int) -> SessionRow:
    """Return the session after a change whose records follow the given position."""
    ended = change.end is not None
    return structs.replace(
        row,
        branch=branch,
        seq=seq + len(change.records),
        total=total + sum(record.tokens for record in change.records),
        version=row.version + change.moves_path,
        epoch=row.epoch + change.next_epoch,
        active=max(row.active, change.now) if change.is_activity else row.active,
        ended=change.now if ended else None if change.next_epoch else row.ended,
        reason=change.end or ("" if change.next_epoch else row.reason),
        fence=row.fence + change.next_epoch,
        lease_until=0 if change.next_epoch else row.lease_until,
        holder="" if change.next_epoch else row.holder,
    )


def appended(row: SessionRow, change: Change, *, seq: int, total: int) -> SessionRow:
    """Return the session after a change that only appends."""
    said = change.is_activity  # there is a message, so the path of messages changes, too
    active = change.now if said and change.now > row.active else row.active
    return structs.replace(row, seq=seq, total=total, version=row.version + said, active=active)


def check_meta(row: SessionRow, expected: dict[str, Any] | None) -> None:
    """Raise `Conflict` if the metadata of a session differs from what is expected."""
    if expected is not None and row.meta != expected:
        raise Conflict(
            f"the metadata of session {row.id} has changed since it was read; read it again and decide again",
            version=row.version,
            head=row.head,
            total=row.total,
        )


def busy(session: str, holder: str, left: int) -> Busy:
    """Return the error for a session that another worker has leased for some more milliseconds."""
    return Busy(
        f"session {session} is leased by {holder or 'another worker'} for {max(left, 0) / 1000:.1f} s more; "
        "wait, or take over when it expires"
    )


def _check_epoch(row: SessionRow, change: Change) -> None:
    if change.created is not None and change.created != row.created:
        raise EpochEnded(f"session {row.id} was deleted and created again; open it again")
    if change.epoch is not None and change.epoch != row.epoch:
        raise EpochEnded(
            f"session {row.id}: epoch {change.epoch} has ended, {row.epoch} is current; "
            "open the session again"
        )
    if row.ended is not None and not change.next_epoch:
        raise EpochEnded(f"session {row.id} has ended ({row.reason}); reset() begins its next epoch")


def _check_fence(row: SessionRow, change: Change) -> None:
    if change.next_epoch:
        return
    live = row.lease_until > change.now
    if change.fence is None and live:
        raise busy(row.id, row.holder, row.lease_until - change.now)
    if change.fence is not None and change.fence != row.fence:
        raise Fenced(
            f"session {row.id}: the lease with fence {change.fence} was taken over (fence {row.fence}); "
            "open the session again"
        )


def _check_expectations(row: SessionRow, change: Change) -> None:
    if change.expected_version is not None and change.expected_version != row.version:
        raise Conflict(
            f"session {row.id} is at version {row.version}, not {change.expected_version}; "
            "read the new messages and decide again",
            version=row.version,
            head=row.head,
            total=row.total,
        )
    if change.expected_head is not None and change.expected_head != (row.branch, row.seq):
        raise Conflict(
            f"the head of session {row.id} is {tuple(row.head)}, not {tuple(change.expected_head)}",
            version=row.version,
            head=row.head,
            total=row.total,
        )
