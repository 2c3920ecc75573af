"""The directory on the server: sessions by their addresses, and lists of them over all buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ..values import Address, Filter, Record, Removed, SessionRow
from .layout import (
    DIGITS,
    END,
    bucket_of,
    index_key,
    moment,
    named,
    natural,
    packed,
    session_key,
    session_keys,
    text,
)
from .log import refusal
from .rows import born, record_arguments, session, session_fields
from .scripts import script
from .server import Server
from .walk import Walk
from .witness import Witness

__all__ = ["RedisDirectory", "sweep"]

PAGE = 100
"""Sessions that are fetched at once."""

STEP = 1_000
"""Entries of a removed session that are swept at once: a few milliseconds, in which others wait."""


class RedisDirectory:
    """Which sessions there are."""

    _server: Server
    _witness: Witness

    async def create(self, row: SessionRow, records: Sequence[Record] = ()) -> SessionRow:
        """Make a session with its root branch and first entries, or raise `AlreadyExists`."""
        total = sum(record.tokens for record in records)
        tags = tuple(sorted(set(row.tags)))
        made = structs.replace(row, tags=tags, branch=1, seq=len(records), total=total)
        fields = session_fields(made)
        asked: dict[str, Any] = {
            "tenant": named(row.tenant).decode(),
            "session": row.id,
            "created": row.created,
            "fields": [field.decode() for field in fields],
            "records": len(records),
        }
        if row.user is not None:
            asked["user"] = row.user
        if made.expires is not None:
            asked["expires"] = natural(made.expires)
        arguments = [packed(asked), *record_arguments(row.address, records)]
        answer = await self._server.run(script("create"), session_keys(row.address), arguments)
        if answer[0] != b"made":
            raise refusal(row.address, answer)
        created = session(row.address, fields)
        self._witness.saw(created, born=int(answer[1]), known=None)
        return created

    async def get(self, at: Address) -> SessionRow:
        """Give a session, or raise `NotFound`."""
        known = self._witness.known(at)
        (flat,) = await self._server.run(script("hashes"), [session_key(at, b"row")], twice=True)
        if not flat:
            raise refusal(at, [b"absent"])
        row = session(at, flat)
        self._witness.saw(row, born=born(flat), known=known)
        return row

    async def page(
        self, tenant: str, which: Filter, *, after: SessionRow | None = None, limit: int = 100
    ) -> list[SessionRow]:
        """Give a page of sessions, newest first by creation, from behind the last one of a page on."""
        user = which.user
        name = b"d" + named(tenant) if user is None else b"u" + named(tenant) + named(user)
        behind = None if after is None else moment(after.created) + text(after.id)
        listed = Walk(self._server, name, after=behind, newest=True)
        return await self._first(tenant, listed, limit, lambda row: _matches(row, which))

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
            b"title": None if title is None else text(title),
            b"tags": None if tags is None else msgspec.json.encode(sorted(set(tags))),
            b"meta": None if meta is None else msgspec.json.encode(meta),
            b"idle": None if idle is None else b"%d" % natural(idle),
        }
        given = [piece for name, value in changes.items() if value is not None for piece in (name, value)]
        asked = [named(at.tenant), text(at.session), *given]
        answer = await self._server.run(script("update"), session_keys(at), asked, twice=True)
        if answer[0] != b"there":
            raise refusal(at, answer)
        return session(at, answer[1])

    async def due(self, tenant: str, now: int, *, limit: int = 100) -> list[SessionRow]:
        """Return sessions that were left idle for too long: without a message and without a lease."""

        def is_left(row: SessionRow) -> bool:
            return row.is_idle(now)

        listed = Walk(self._server, b"e" + named(tenant))
        return await self._first(tenant, listed, limit, is_left, until=moment(now + 1))

    async def remove(self, at: Address) -> Removed:
        """Delete a session with everything that hangs on it: no query finds it any more."""
        asked = [named(at.tenant), text(at.session)]
        answer = await self._server.run(script("remove"), session_keys(at), asked)
        self._witness.forget(at)
        await sweep(self._server, at)  # also what an earlier removal left that was broken off
        if answer[0] != b"gone":
            raise refusal(at, answer)
        entries, branches, keys, parcels = map(int, answer[1:])
        return Removed(entries=entries, branches=branches, keys=keys, parcels=parcels)

    async def _first(
        self,
        tenant: str,
        listed: Walk,
        limit: int,
        wanted: Callable[[SessionRow], bool],
        *,
        until: bytes = END,
    ) -> list[SessionRow]:
        """Give the first sessions of a list that are wanted; what was removed meanwhile is passed over."""
        found = list[SessionRow]()
        while len(found) < limit:
            members = [member.rest for member in await listed.some(PAGE) if member.rest < until]
            if not members:
                break
            rows = await self._rows([Address(tenant, rest[DIGITS:].decode()) for rest in members])
            found += filter(wanted, rows)
        return found[: max(limit, 0)]

    async def _rows(self, some: Sequence[Address]) -> list[SessionRow]:
        by_bucket = {bucket_of(at): list[Address]() for at in some}
        for at in some:
            by_bucket[bucket_of(at)].append(at)
        groups = [
            [at for bucket in group for at in by_bucket[bucket]] for group in self._server.grouped(by_bucket)
        ]
        calls = [([session_key(at, b"row") for at in group], ()) for group in groups]
        answers = await self._server.run_all(script("hashes"), calls, twice=True)
        found = {
            at: session(at, flat)
            for group, answer in zip(groups, answers, strict=True)
            for at, flat in zip(group, answer, strict=True)
            if flat
        }
        return [found[at] for at in some if at in found]


async def sweep(server: Server, at: Address) -> None:
    """Take the words of a session that was removed out of the lists, a step at a time."""
    keys = [index_key(bucket_of(at)), session_key(at, b"gone")]
    asked = [named(at.tenant), text(at.session), b"%d" % STEP]
    while await server.run(script("sweep"), keys, asked, twice=True):
        pass


def _matches(row: SessionRow, which: Filter) -> bool:
    return (
        (which.tag is None or which.tag in row.tags)
        and (which.since is None or row.active >= which.since)
        and (which.until is None or row.active < which.until)
        and which.live in (None, row.ended is None)
    )
