"""The log in PostgreSQL: a change is one call of a function on the server.

The server checks and writes, or gives the session as it found it; then `admission` says here what was
wrong with the change, in the same words as for every store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import AlreadyExists, NotFound, SessionError, StoreError
from ..admission import KEY_LIFE, KnownKey, admitted
from ..values import Address, Branch, Change, Hit, Receipt, Record, Row, SessionRow, Span
from .connections import Connections
from .rows import branch_row, entry_columns, entry_row, query_of

__all__ = ["PostgresLog", "missing", "repeated_id"]

END = 2**63 - 1


class PostgresLog:
    """Append to sessions, and read them."""

    _connections: Connections

    async def commit(self, change: Change) -> Receipt:
        """Take a change whole, or raise the first check that fails and take nothing."""
        try:
            (told,) = await self._connections.write("append", **_columns(change))
        except AlreadyExists:
            taken = repeated_id(change.records) or await self._first_taken(change)
            raise AlreadyExists(f"session {change.at.session} holds an entry {taken} already") from None
        if told["outcome"] not in ("taken", "repeated"):
            raise _refusal(change, told)
        return Receipt(
            epoch=told["epoch"],
            version=told["version"],
            branch=told["branch"],
            first=told["first"],
            last=told["last"],
            repeated=told["outcome"] == "repeated",
        )

    async def read(
        self, at: Address, span: Span, *, limit: int | None = None, newest: bool = False
    ) -> list[Row]:
        """Give a run of entries in order; with a limit the first ones, or the newest."""
        name = "read_newest" if newest else "read"
        return _entries(at, await self._connections.read(name, **at._asdict(), **span._asdict(), limit=limit))

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Give the entries with these ids, those that there are, in the order of the log."""
        return _entries(at, await self._connections.read("find", **at._asdict(), ids=list(ids)))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Give the newest entry of each kind on a path, whose newest span comes first."""
        path = {
            "branches": [span.branch for span in spans],
            "firsts": [span.first for span in spans],
            "lasts": [span.last for span in spans],
        }
        found = await self._connections.read("newest", **at._asdict(), **path, kinds=list(set(kinds)))
        return {row.kind: row for row in _entries(at, found)}

    async def branches(self, at: Address) -> list[Branch]:
        """Give all branches of a session in the order of their making."""
        found = await self._connections.read("branches", **at._asdict())
        if not found:
            raise missing(at)
        return [branch_row(columns) for columns in found if columns[0] is not None]

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Give the entries that hold all the words, newest first, from behind a mark on."""
        wanted = query_of(words, tenant=tenant, user=user)
        if wanted is None:
            return []
        behind = END if before is None else before
        which = {"words": wanted, "tenant": tenant, "user": user, "before": behind, "limit": limit}
        return [
            Hit(session=session, row=entry_row(columns), mark=mark)
            for mark, session, *columns in await self._connections.read("search", **which)
        ]

    async def _first_taken(self, change: Change) -> str:
        ids = [record.id for record in change.records]
        return next((row.id for row in await self.find(change.at, ids)), ids[0])


def missing(at: Address) -> NotFound:
    """Give the error of a session that is not there."""
    return NotFound(f"there is no session {at.session}")


def repeated_id(records: Sequence[Record]) -> str | None:
    """Give the first id that several records have."""
    seen = set[str]()
    for record in records:
        if record.id in seen:
            return record.id
        seen.add(record.id)
    return None


def _entries(at: Address, found: Sequence[Any]) -> list[Row]:
    """Give entries as values: no row is no session, and a row of nothing a session without any."""
    if not found:
        raise missing(at)
    return [entry_row(columns) for columns in found if columns["seq"] is not None]


def _columns(change: Change) -> dict[str, Any]:
    """Give what the function takes."""
    key, head, fork, parcels = change.key, change.expected_head, change.fork, change.parcels
    return {
        **change.at._asdict(),
        **entry_columns(change.records),
        "now": change.now,
        "epoch": change.epoch,
        "key_name": key and key.name,
        "key_digest": key and key.digest,
        "key_life": KEY_LIFE,
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


def _refusal(change: Change, told: Any) -> Exception:
    """Say why the server took nothing."""
    match told["outcome"]:
        case "no session":
            return missing(change.at)
        case "no branch":
            branch = change.fork.parent if change.fork else change.select
            return NotFound(f"session {change.at.session} has no branch {branch}")
        case "no entry" if change.fork:
            place = f"branch {change.fork.parent} of session {change.at.session}"
            return NotFound(f"{place} has no entry {change.fork.seq}")
        case _:
            return _failed_check(change, told)


def _failed_check(change: Change, told: Any) -> Exception:
    known = None
    if told["known_digest"] is not None:
        nowhere = Receipt(epoch=0, version=0, branch=0, first=0, last=0)
        known = KnownKey(told["known_digest"], nowhere, told["known_created"])
    try:
        admitted(_seen(change.at, told), change, known)
    except SessionError as error:
        return error
    return StoreError(f"the server refused a change of session {change.at.session} without a reason")


def _seen(at: Address, told: Any) -> SessionRow:
    """Give the session as the server found it, as far as checks look at it."""
    return SessionRow(
        tenant=at.tenant,
        id=at.session,
        user=None,
        title="",
        tags=(),
        counter="",
        meta={},
        created=0,
        active=0,
        epoch=told["epoch"],
        branch=told["branch"],
        seq=told["last"],
        version=told["version"],
        fence=told["fence"],
        lease_until=told["lease_until"],
        holder=told["holder"],
        ended=told["ended"],
        reason=told["reason"],
    )
