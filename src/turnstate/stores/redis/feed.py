"""The feed on the server: the list of entries by their stamps, bucket by bucket.

Within a bucket stamps only increase, and one script writes an entry together with its place in the list.
There is no such order across buckets, since the clocks of the nodes differ. So a cursor contains the last
stamp of every bucket, and entries of several buckets are merged by their stamps as they are found.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...errors import InputError, NotFound
from ..values import Address, FeedItem, FeedPage, Row
from .layout import BUCKETS, END, bucket_of, index_key, moment, named, session_key, text
from .lists import Member, MergedList
from .log import refusal, rows_at
from .rows import described
from .server import Server, script

STEP = 250
"""Members of a bucket that are read at a time to find those of one session."""

_Stamps = dict[int, int]


class _FeedPart(NamedTuple):
    """A parsed member of the list: the stamp, place and session of an entry."""

    stamp: int
    place: bytes
    session: bytes


async def since(server: Server, at: Address, id: str | None, limit: int) -> list[Row]:
    """Return the entries of a session, on all branches, that were written after a given one."""
    stamp = 0 if id is None else await _stamp_of(server, at, id)
    bucket, own = bucket_of(at), text(at.session)
    listed = MergedList(
        server, b"w" + named(at.tenant), after={bucket: _after(stamp)}, by_time=True, buckets=[bucket]
    )
    rows = list[Row]()
    while len(rows) < limit and (members := await listed.some(STEP)):
        parts = [part for part in map(_parts, members) if part.session == own]
        rows += (await _rows_of(server, at, parts)).values()
    if not rows and not await server.ask("EXISTS", session_key(at, b"row")):
        raise refusal(at, [b"absent"])
    return rows[:limit]


async def _stamp_of(server: Server, at: Address, id: str) -> int:
    place = await server.ask("HGET", session_key(at, b"id"), text(id))
    line = await server.ask("HGET", session_key(at, b"entry"), place) if place else None
    known = described(line or b"")
    if known is None or not known.stamp:
        if not await server.ask("EXISTS", session_key(at, b"row")):
            raise refusal(at, [b"absent"])
        raise NotFound(f"session {at.session} has no entry {id} that can be followed")
    return known.stamp


async def feed(server: Server, tenant: str, cursor: str, limit: int) -> FeedPage:
    """Return the entries of all sessions of a tenant after a cursor."""
    stamps = _read(cursor)
    starts = {bucket: _after(stamp) for bucket, stamp in stamps.items()}
    listed = MergedList(server, b"w" + named(tenant), after=starts, by_time=True)
    members = await listed.some(limit)
    rows, items = await _rows(server, tenant, members), list[FeedItem]()
    for member in members:
        part = _parts(member)
        stamps[member.bucket] = part.stamp
        if row := rows.get(part):
            items.append(FeedItem(session=part.session.decode(), row=row, cursor=_written(stamps)))
    return FeedPage(items, _written(stamps))


async def _rows(server: Server, tenant: str, members: Sequence[Member]) -> dict[_FeedPart, Row]:
    """Fetch entries, session by session."""
    by_session, found = defaultdict[bytes, list[_FeedPart]](list), dict[_FeedPart, Row]()
    for part in map(_parts, members):
        by_session[part.session].append(part)
    for session, parts in by_session.items():
        found |= await _rows_of(server, Address(tenant, session.decode()), parts)
    return found


async def _rows_of(server: Server, at: Address, parts: Sequence[_FeedPart]) -> dict[_FeedPart, Row]:
    """Fetch entries of a session; skip those of an earlier session with the same id, whose stamps differ."""
    if not parts:
        return {}
    lines = await server.ask("HMGET", session_key(at, b"entry"), *(part.place for part in parts))
    known = [described(line or b"") for line in lines]
    there = [
        part for part, line in zip(parts, known, strict=True) if line is None or line.stamp == part.stamp
    ]
    try:
        rows = await rows_at(server, at, [part.place for part in there])
    except NotFound:  # removed since
        return {}
    return dict(zip(there, rows, strict=True))


async def feed_end(server: Server, tenant: str) -> str:
    """Return the cursor after all entries of a tenant that exist now."""
    name = b"w" + named(tenant)
    groups = server.grouped(range(BUCKETS))
    calls = [
        (
            [index_key(bucket) for bucket in group],
            [b"newest", b"1", b"[" + name, *[b"(" + name + END] * len(group)],
        )
        for group in groups
    ]
    stamps = _Stamps()
    for group, answer in zip(groups, await server.run_all(script("walk"), calls, twice=True), strict=True):
        for position, (member,) in answer:
            stamps[group[position - 1]] = _parts(Member(member[len(name) :], 0)).stamp
    return _written(stamps)


def _parts(member: Member) -> _FeedPart:
    stamp, branch, seq, session = member.rest.split(b":", 3)
    return _FeedPart(int(stamp), branch + b":" + seq, session)


def _after(stamp: int) -> bytes:
    return moment(stamp) + END


def _written(stamps: _Stamps) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(stamps)).decode().rstrip("=")


def _read(cursor: str) -> _Stamps:
    if not cursor:
        return {}
    try:
        packed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        stamps = msgspec.msgpack.decode(packed, type=_Stamps)
    except (ValueError, msgspec.MsgspecError):
        raise InputError(
            f"{cursor!r:.60} is not a cursor of this store; pass the cursor of an entry"
        ) from None
    return {bucket: stamp for bucket, stamp in stamps.items() if 0 <= bucket < BUCKETS}
