"""A worker of its own process: appends to one session when told to, and says what was acknowledged.

python redis_worker.py URL NAME COUNT
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.stores.redis import connect
from holdfast.stores.values import Address, Change, Record

AT = Address("acme", "shared")


async def append(url: str, name: str, count: int) -> None:
    store = await connect(url)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        for n in range(count):
            record = Record(id=f"{name}.{n}", kind="message", body=b"{}", tokens=n, words=(name,))
            receipt = await store.commit(Change(at=AT, now=n, records=(record,)))
            print(receipt.last, record.id, flush=True)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], sys.argv[2], int(sys.argv[3])))
