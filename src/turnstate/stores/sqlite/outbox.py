"""The outbox in SQLite: parcels in the order in which they are due."""

from __future__ import annotations

from typing import Any

import apsw
from msgspec import structs

from ...errors import NotFound
from ..values import Parcel
from .queries import query, scanning
from .readers import Readers
from .rows import parcel
from .soundness import parcels_are_indexed
from .writer import Writer

__all__ = ["SqliteOutbox"]

_BY_ITSELF = "INDEXED BY sqlite_autoindex_outbox_1"
"""The table itself: it has no numbers of rows, and NOT INDEXED would leave the choice of a tree to SQLite."""


class SqliteOutbox:
    """Parcels as rows; a change writes them with the entries that they speak of."""

    _writer: Writer
    _readers: Readers

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        return await self._writer.run(lambda db: _take(db, now, until, limit, tenant))

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._writer.run(lambda db: db.execute(query("drop_parcel"), {"id": id}) and None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        columns = {"id": id, "error": error, "due": due}
        await self._writer.run(lambda db: db.execute(query("fail_parcel"), columns) and None)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        which = {"tenant": tenant, "parked": parked, "limit": limit}
        return await self._readers.run(lambda db: _parcels(db, "parcels", which))

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        await self._writer.run(lambda db: _revive(db, id, due))


def _take(db: apsw.Connection, now: int, until: int, limit: int, tenant: str | None) -> list[Parcel]:
    which = {"now": now, "tenant": tenant, "limit": limit}
    due = _parcels(db, "due_parcels", which)
    for one in due:
        db.execute(query("claim_parcel"), {"id": one.id, "until": until})
    return [structs.replace(one, due=until, tries=one.tries + 1) for one in due]


def _parcels(db: apsw.Connection, name: str, which: dict[str, Any]) -> list[Parcel]:
    """Return parcels, by their index or, if that is damaged, by a scan of the outbox."""
    sql = query(name) if parcels_are_indexed(db) else scanning(name, "outbox", _BY_ITSELF)
    return [parcel(row) for row in db.execute(sql, which)]


def _revive(db: apsw.Connection, id: str, due: int) -> None:
    if not list(db.execute(query("revive_parcel"), {"id": id, "due": due})):
        raise NotFound(f"no parcel {id} is parked")
