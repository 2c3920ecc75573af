"""The log in PostgreSQL: a change is one call of a function on the server.

The server checks and writes, or returns the session as it found it. Then `admission` runs here on that
session and raises the same error as every other store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import NotFound, SessionError, StoreError
from ..admission import KnownKey, admitted
from ..values import Address, Change, Receipt, Record, Row, SessionRow
from .rows import entry_columns, entry_row


def missing(at: Address) -> NotFound:
    """Return the error for a session that does not exist."""
    return NotFound(f"there is no session {at.session}")


def repeated_id(records: Sequence[Record]) -> str | None:
    """Return the first id that occurs twice."""
    seen = set[str]()
    for record in records:
        if record.id in seen:
            return record.id
        seen.add(record.id)
    return None


def entries(at: Address, found: Sequence[Any]) -> list[Row]:
    """Convert rows to entries. No row means the session is missing; a row of NULLs means it is empty."""
    if not found:
        raise missing(at)
    return [entry_row(columns) for columns in found if columns["seq"] is not None]


def change_columns(change: Change) -> dict[str, Any]:
    """Return the arguments of the function for a change."""
    key, head, fork, parcels = change.key, change.expected_head, change.fork, change.parcels
    return {
        **change.at._asdict(),
        **entry_columns(change.records),
        "now": change.now,
        "created": change.created,
        "epoch": change.epoch,
        "key_name": key and key.name,
        "key_digest": key and key.digest,
        "key_life": change.key_life,
        "fence": change.fence,
        "expected_version": change.expected_version,
        "expected_branch": head and head.branch,
        "expected_seq": head and head.seq,
        "forks": fork is not None,
        "fork_parent": fork and fork.parent,
        "fork_at": fork and fork.seq,
        "fork_name": fork and fork.name,
        "fork_operation": fork and fork.operation,
        "select": change.select,
        "parcel_ids": [parcel.id for parcel in parcels],
        "parcel_tenants": [parcel.tenant for parcel in parcels],
        "parcel_sessions": [parcel.session for parcel in parcels],
        "parcel_kinds": [parcel.kind for parcel in parcels],
        "parcel_bodies": [parcel.body for parcel in parcels],
        "parcel_dues": [parcel.due for parcel in parcels],
        "moves_path": change.moves_path,
        "is_activity": change.is_activity,
        "next_epoch": change.next_epoch,
        "end": change.end,
    }


def refusal(change: Change, answer: Any) -> Exception:
    """Return the error that says why the server refused a change."""
    match answer["outcome"]:
        case "no session":
            return missing(change.at)
        case "no branch":
            branch = change.fork.parent if change.fork else change.select
            return NotFound(f"session {change.at.session} has no branch {branch}")
        case "no entry" if change.fork:
            place = f"branch {change.fork.parent} of session {change.at.session}"
            return NotFound(f"{place} has no entry {change.fork.seq}")
        case _:
            return _failed_check(change, answer)


def _failed_check(change: Change, answer: Any) -> Exception:
    known = None
    if answer["known_digest"] is not None:
        nowhere = Receipt(epoch=0, version=0, branch=0, first=0, last=0)
        known = KnownKey(answer["known_digest"], nowhere, answer["known_created"])
    try:
        admitted(_found_session(change.at, answer), change, known)
    except SessionError as error:
        return error
    return StoreError(
        f"the server refused a change of session {change.at.session} without giving a reason; "
        "report this as a bug"
    )


def _found_session(at: Address, answer: Any) -> SessionRow:
    """Return the session as the server found it, with only the fields that the checks use."""
    return SessionRow(
        tenant=at.tenant,
        id=at.session,
        user=None,
        title="",
        tags=(),
        counter="",
        meta={},
        created=answer["created"],
        active=0,
        total=answer["total"],
        epoch=answer["epoch"],
        branch=answer["branch"],
        seq=answer["last"],
        version=answer["version"],
        fence=answer["fence"],
        lease_until=answer["lease_until"],
        holder=answer["holder"],
        ended=answer["ended"],
        reason=answer["reason"],
    )
