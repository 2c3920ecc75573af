"""The directory of the memory store: which sessions there are, sorted when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from ...errors import AlreadyExists
from ..values import Address, Filter, Record, Removed, SessionRow
from .state import Kept, Port, private, written

__all__ = ["MemoryDirectory"]


class MemoryDirectory(Port):
    """Which sessions there are."""

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        with self._state.lock:
            if row.address in self._state.sessions:
                raise AlreadyExists(f"there is a session {row.id} already")
            rows = written(records, branch=1, seq=0, total=0)
            total = rows[-1][0].total if rows else 0
            tags = tuple(sorted(set(row.tags)))
            kept = Kept(structs.replace(private(row), tags=tags, branch=1, seq=len(rows), total=total))
            kept.check_new(records)
            self._state.sessions[row.address] = kept
            self._state.append(kept, rows)
            return private(kept.row)

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        with self._state.lock:
            return private(self._state.kept(at).row)

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        found = [row for row in self._rows(tenant) if _matches(row, which)]
        if after is not None:
            found = [row for row in found if (row.created, row.id) < (after.created, after.id)]
        found.sort(key=lambda row: (row.created, row.id), reverse=True)
        return [private(row) for row in found[:limit]]

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
        changes = {
            "title": title,
            "tags": None if tags is None else tuple(sorted(set(tags))),
            "meta": meta,
            "idle": idle,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        with self._state.lock:
            kept = self._state.kept(at)
            kept.row = private(structs.replace(kept.row, **given))
            return private(kept.row)

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were left idle for too long: without a message and without a lease."""
        idle = [row for row in self._rows(tenant) if row.is_idle(now)]
        idle.sort(key=lambda row: (row.active + row.idle, row.id))
        return [private(row) for row in idle[:limit]]

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it."""
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


def _matches(row: SessionRow, which: Filter) -> bool:
    return (
        which.user in (None, row.user)
        and (which.tag is None or which.tag in row.tags)
        and (which.since is None or row.active >= which.since)
        and (which.until is None or row.active < which.until)
        and which.live in (None, row.ended is None)
    )
