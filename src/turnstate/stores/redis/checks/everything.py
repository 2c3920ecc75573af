"""All that a store holds, walked once: every key of every node, then the lists of every bucket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from ...values import Address, Finding, Recount
from ..directory import sweep
from ..layout import BUCKETS, index_key, parcel_key
from ..scripts import script
from ..server import Server
from .inspection import Inspection
from .lists import inspect_bucket
from .sessions import inspect_session

__all__ = ["verified"]

A_WHILE = 0.2
"""Seconds in which whoever removes a session gets on with it."""

_SCANNED = 500
_KEY = re.compile(rb"\{ts:(\d+)\}:(row|branch|entry|body|id|asked|word|own|aside|gone):(\d+):(.*)", re.DOTALL)


async def verified(server: Server, *, repair: bool, recount: Recount | None = None) -> AsyncIterator[Finding]:
    """Give what is wrong with a store."""
    for node in await server.nodes():
        cursor = 0
        while True:
            cursor, keys = await server.ask("SCAN", cursor, "MATCH", "{ts:*}:*", "COUNT", _SCANNED, node=node)
            for key in keys:
                async for finding in _inspect_key(server, key, repair=repair, recount=recount):
                    yield finding
            cursor = int(cursor)
            if cursor == 0:
                break
    for bucket in range(BUCKETS):
        keys = [index_key(bucket), parcel_key(bucket), b"{ts:%d}:lost" % bucket]
        case = Inspection(server, repair=repair, keys=keys)
        async for finding in inspect_bucket(case, bucket):
            yield finding


async def _inspect_key(
    server: Server, key: bytes, *, repair: bool, recount: Recount | None
) -> AsyncIterator[Finding]:
    found = _KEY.fullmatch(key)
    if found is None:
        return
    bucket, kind, length, rest = found.groups()
    try:
        at = Address(rest[: int(length)].decode(), rest[int(length) :].decode())
    except UnicodeDecodeError:
        return
    if kind == b"row":
        async for finding in inspect_session(Inspection(server, repair=repair, at=at, recount=recount)):
            yield finding
        return
    if kind == b"gone":
        if await _is_at_rest(server, key):
            if repair:
                await sweep(server, at)
            fault, done = "its removal was broken off", "completed" if repair else ""
            yield Finding(tenant=at.tenant, session=at.session, fault=fault, done=done)
        return
    keys = [b"{ts:%s}:%s:%s:%s" % (bucket, name, length, rest) for name in (b"row", kind, b"lost-" + kind)]
    asked = [b"repair" if repair else b"look"]
    if await server.run(script("orphan"), keys, asked, twice=True):
        yield Finding(
            tenant=at.tenant,
            session=at.session,
            fault=f"`{kind.decode()}` of a session that is not there",
            done=f"it is set aside as {keys[-1].decode(errors='replace')!r}" if repair else "",
        )


async def _is_at_rest(server: Server, key: bytes) -> bool:
    """Tell whether nobody sweeps what a removal left."""
    before = await server.ask("HLEN", key)
    await asyncio.sleep(A_WHILE)
    return bool(before) and before == await server.ask("HLEN", key)
