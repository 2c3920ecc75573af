"""After the fault, on PostgreSQL: what was promised is there, once and in order, and the store is sound."""

from __future__ import annotations

from collections.abc import Sequence

from postgres_crowd import USER
from promises import Promises

from turnstate.session.manager import SessionManager
from turnstate.stores.values import Span

END = 2**60


async def broken(url: str, ids: Sequence[str], promises: Promises) -> list[str]:
    """Open the store anew, and name everything that is wrong with its sessions."""
    stored, wrong = list[str](), list[str]()
    async with await SessionManager.open(url) as sessions:
        for id in ids:
            session = await sessions.open(id, user=USER)
            stored += [str(message.content) for message in await session.messages()]
            rows = await sessions.store.read(session.row.address, Span(1, 1, END))
            if [row.seq for row in rows] != list(range(1, session.row.seq + 1)):
                wrong.append(f"gap: session {id}")
        wrong += [f"verify: {finding.fault}" async for finding in sessions.store.verify(repair=False)]
    return wrong + promises.broken_by(stored)
