"""The outbox in PostgreSQL: whoever takes a parcel passes over those that others are taking."""

from __future__ import annotations

from ...errors import NotFound
from ..values import Parcel
from .connections import Connections
from .rows import parcel_row

__all__ = ["PostgresOutbox"]


class PostgresOutbox:
    """Parcels as rows; a change writes them with the entries that they speak of."""

    _connections: Connections

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        asked = {"now": now, "until": until, "limit": limit, "tenant": tenant}
        return [parcel_row(columns) for columns in await self._connections.write("take", **asked)]

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        await self._connections.write("deliver", id=id)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        await self._connections.write("fail", id=id, error=error, due=due)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        found = await self._connections.read("parcels", tenant=tenant, parked=parked, limit=limit)
        return [parcel_row(columns) for columns in found]

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        if not await self._connections.write("revive", id=id, due=due):
            raise NotFound(f"no parcel {id} is parked")
