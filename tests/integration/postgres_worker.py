"""A worker of its own process: opens a store when told to, and appends to one session.

python postgres_worker.py URL append NAME COUNT     says what was acknowledged, a line each
python postgres_worker.py URL migrate               never comes to the end of a migration
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.stores.postgres import connect, migration
from holdfast.stores.values import Address, Change, Key, Record

AT = Address("acme", "shared")


def told_to_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def append(url: str, name: str, count: int) -> None:
    store = await connect(url)
    try:
        for n in range(count):
            record = Record(id=f"{name} {n}", kind="message", body=b"{}", tokens=n)
            key = Key(f"{name} {n}", b"digest")
            receipt = await store.commit(Change(at=AT, now=n, key=key, records=(record,)))
            print(receipt.last, record.id, flush=True)
    finally:
        await store.close()


async def migrate(url: str) -> None:
    real = migration.migrations
    migration.migrations = lambda schema: (*real(schema), "SELECT pg_sleep(1000)")  # type: ignore[assignment]
    await connect(url)


if __name__ == "__main__":
    url, job, *rest = sys.argv[1:]
    told_to_go()
    asyncio.run(append(url, rest[0], int(rest[1])) if job == "append" else migrate(url))
