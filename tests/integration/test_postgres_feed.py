"""The feed on PostgreSQL waits for transactions that took their keys earlier and commit later."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.harness.postgres_server import fresh_url, shared_url
from turnstate.stores.postgres import connect, feed
from turnstate.stores.values import Address, Change, Record, SessionRow

TENANT = "acme"

LATE = """
INSERT INTO {schema}.entry (session, branch, seq, id, kind, body, tokens, total, checksum)
SELECT key, 1, 1, 'late', 'note', '', 0, 0, 0 FROM {schema}.session WHERE id = 'a'
"""


def session(id: str) -> SessionRow:
    return SessionRow(
        tenant=TENANT, id=id, user=None, title="", tags=(), counter="", meta={}, created=1, active=1
    )


def note(id: str, at: str) -> Change:
    return Change(at=Address(TENANT, at), now=1, records=(Record(id=id, kind="note", body=b"{}"),))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_entry_that_is_committed_late_is_not_skipped(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PATIENCE", 0.05)

    async def test(url: str) -> None:
        store, other = await connect(url), await asyncpg.connect(shared_url())
        schema = store._connections.target.schema
        try:
            for id in ("a", "b"):
                await store.create(session(id))
            await store.commit(note("first", "b"))
            items, cursor = await store.feed(TENANT, "", limit=9)
            assert [item.row.id for item in items] == ["first"]
            await other.execute("BEGIN")
            await other.execute(LATE.format(schema=schema))  # it has the lower key
            await store.commit(note("early", "b"))
            assert [row.id for row in await store.since(Address(TENANT, "b"), "first", limit=9)] == ["early"]
            assert await store.feed(TENANT, cursor, limit=9) == ([], cursor)
            await other.execute(end)
            items, cursor = await store.feed(TENANT, cursor, limit=9)
            assert [item.row.id for item in items] == (["late"] if end == "COMMIT" else []) + ["early"]
            assert await store.feed(TENANT, cursor, limit=9) == ([], cursor)
        finally:
            await other.close()
            await store.close()

    with fresh_url() as url:
        asyncio.run(test(url))
