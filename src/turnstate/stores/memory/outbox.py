"""The outbox of the memory store: parcels by their ids, put in by a change of the log."""

from __future__ import annotations

from msgspec import structs

from ...errors import NotFound
from ..values import Parcel
from .state import Port

__all__ = ["MemoryOutbox"]


class MemoryOutbox(Port):
    """What is to be delivered."""

    async def take(self, now: int, *, until: int, limit: int, tenant: str | None = None) -> list[Parcel]:
        """Claim parcels that are due: nobody else gets them before that moment. Each take is a try."""
        with self._state.lock:
            due = [parcel for parcel in self._waiting(tenant, parked=False) if parcel.due <= now][:limit]
            taken = [structs.replace(parcel, due=until, tries=parcel.tries + 1) for parcel in due]
            self._state.outbox.update({parcel.id: parcel for parcel in taken})
            return taken

    async def delivered(self, id: str) -> None:
        """Remove a parcel that has arrived."""
        with self._state.lock:
            self._state.outbox.pop(id, None)

    async def failed(self, id: str, *, error: str, due: int | None) -> None:
        """Note why a parcel did not arrive, and when to try again; without a time it is parked."""
        with self._state.lock:
            if parcel := self._state.outbox.get(id):
                later = parcel.due if due is None else due
                self._state.outbox[id] = structs.replace(parcel, error=error, due=later, parked=due is None)

    async def parcels(
        self, *, tenant: str | None = None, parked: bool | None = None, limit: int = 100
    ) -> list[Parcel]:
        """Show what waits, the oldest due first."""
        with self._state.lock:
            return self._waiting(tenant, parked)[:limit]

    async def revive(self, id: str, *, due: int) -> None:
        """Try a parked parcel again, as if it were new; `NotFound` where there is none."""
        with self._state.lock:
            parcel = self._state.outbox.get(id)
            if parcel is None or not parcel.parked:
                raise NotFound(f"no parcel {id} is parked")
            self._state.outbox[id] = structs.replace(parcel, due=due, tries=0, parked=False)

    def _waiting(self, tenant: str | None, parked: bool | None) -> list[Parcel]:
        found = [
            parcel
            for parcel in self._state.outbox.values()
            if tenant in (None, parcel.tenant) and parked in (None, parcel.parked)
        ]
        return sorted(found, key=lambda parcel: (parcel.due, parcel.id))
