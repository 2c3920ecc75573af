"""Restoring: a session of an archive into a store, whole or not at all.

It is written as it came about, branch by branch, each from the place where it forked, in commits of
many entries. Until the last of them it is held by a lease without an end, under a name that says so:
nobody else can write to it, and an import that was killed is known by it and begun anew. The session
starts with such a version that it ends with its own.

An archive is foreign: token counts are computed again from the text, and nothing is allocated because a
line announces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

from msgspec import Struct, structs

from .. import ids
from ..context.policy import Policy
from ..entry import Entry, Note
from ..errors import AlreadyExists, Busy, Fenced, NotFound
from ..log.records import records as make_records
from ..stores.port import Store
from ..stores.values import FOREVER, Branch, Change, Fork, Lease, Position, Record, SessionRow
from ..tokens import counter as counter_named
from .format import ArchivedBranch, ArchivedEntry, ArchivedSession
from .read import Bundle

__all__ = ["Restored", "is_half_made", "restore"]

BATCH = 64
"""Entries in a commit: enough to make the fsync cheap, few enough to be held in memory."""

IMPORTER = "turnstate import"
_DAMAGED = Note("What stood here was damaged when it was exported.")


class Restored(Struct, frozen=True):
    """What became of a session: imported, there already as it is, or another of its id left alone."""

    id: str
    result: Literal["imported", "known", "skipped"]
    entries: int


def is_half_made(row: SessionRow) -> bool:
    """Tell a session whose import has not ended, or was killed."""
    return row.holder == IMPORTER and row.lease_until == FOREVER


async def restore(
    store: Store, tenant: str, bundle: Bundle, *, now: int, skip_existing: bool = False
) -> Restored:
    """Write a session into a store; `AlreadyExists` where another session has its id."""
    entries = sum(branch.entries for branch in bundle.branches)
    row = _row(tenant, bundle, fence=now)
    restoring = _Restoring(store, row, bundle.session)
    try:
        if other := await restoring.begin(bundle):
            if other == "skipped" and not skip_existing:
                raise AlreadyExists(
                    f"there is another session {row.id} already; --skip-existing passes over it"
                )
            return Restored(row.id, other, entries)
        await restoring.write(bundle)
    except (Fenced, NotFound):
        raise Busy(f"session {row.id} was taken over by another import; this one is not needed") from None
    return Restored(row.id, "imported", entries)


async def _created(store: Store, row: SessionRow, bundle: Bundle) -> Literal["known", "skipped"] | None:
    """Begin a session, over again where an import did not end; tell where there is one already."""
    try:
        await store.create(row)
    except AlreadyExists:
        known = await store.get(row.address)
        if not is_half_made(known):
            return "known" if await _is_same(store, known, bundle) else "skipped"
        await store.remove(row.address)
        await store.create(row)
    return None


async def _is_same(store: Store, known: SessionRow, bundle: Bundle) -> bool:
    """Return True if a session is the archived one; what may be renamed at any time is left out."""
    session = bundle.session
    if (known.created, known.epoch, known.version, known.branch, known.seq) != (
        *(session.created, session.epoch, session.version, session.branch),
        bundle.branches[session.branch - 1].tip,
    ):
        return False
    return await store.branches(known.address) == [_branch(branch) for branch in bundle.branches]


class _Restoring:
    """Writes one session that was begun, and takes it back where that fails."""

    def __init__(self, store: Store, row: SessionRow, session: ArchivedSession) -> None:
        self._store, self._row, self._session = store, row, session
        self._counter = counter_named(session.counter)
        self._head = Position(1, 0)

    async def begin(self, bundle: Bundle) -> Literal["known", "skipped"] | None:
        """Begin the session, unless it is there already."""
        beginning = asyncio.ensure_future(_created(self._store, self._row, bundle))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            if await _ended(beginning) and beginning.result() is None:
                await self._take_back()
            raise

    async def write(self, bundle: Bundle) -> None:
        """Write everything, and let the session go."""
        try:
            await self._branches(bundle)
            if self._head.branch != self._session.branch:
                await self._commit(select=self._session.branch)
            if self._session.ended is not None:
                await self._commit(end=self._session.reason, now=self._session.ended)
        except BaseException:
            await self._take_back()
            raise
        lease = Lease(fence=self._row.fence, until=FOREVER)
        await self._store.release(self._row.address, lease, now=self._row.active)  # an import is no activity

    async def _take_back(self) -> None:
        """Remove what was written, whoever interrupts it; what cannot be removed stays marked."""
        await _ended(asyncio.ensure_future(self._removed()))

    async def _removed(self) -> None:
        """Remove what was written, unless another import has begun the session anew."""
        known = await self._store.get(self._row.address)
        if is_half_made(known) and known.fence == self._row.fence:
            await self._store.remove(self._row.address)

    async def _branches(self, bundle: Bundle) -> None:
        entries = bundle.entries()
        for branch in bundle.branches:
            if branch.former is not None:
                await self._fork(branch, branch.former)
            for size in _sizes(branch):
                records = await self._records([*islice(entries, size)])
                await self._commit(select=branch.id, records=records)

    async def _records(self, pairs: list[tuple[ArchivedEntry, Entry | None]]) -> tuple[Record, ...]:
        """Return entries with their archived ids and bytes, and with counts of our own."""
        counted = await make_records([entry or _DAMAGED for _, entry in pairs], self._counter, Policy())
        return tuple(_record(line, record) for (line, _), record in zip(pairs, counted, strict=True))

    async def _fork(self, branch: ArchivedBranch, former: int) -> None:
        if self._head.branch != former:
            await self._commit(select=former)
        fork = Fork(parent=branch.parent, seq=branch.fork_seq, name=branch.name, operation=branch.operation)
        await self._commit(fork=fork, now=branch.created)

    async def _commit(self, *, now: int | None = None, **asked: Any) -> None:
        change = Change(
            at=self._row.address,
            now=self._session.active if now is None else now,
            fence=self._row.fence,
            expected_head=self._head,
            **asked,
        )
        self._head = (await self._store.commit(change)).head


async def _ended(work: asyncio.Future[Any]) -> bool:
    """Wait for something that is not to be left half done; return True if it came about."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return not work.cancelled() and work.exception() is None


def _row(tenant: str, bundle: Bundle, *, fence: int) -> SessionRow:
    session = bundle.session
    return SessionRow(
        tenant=tenant,
        id=session.id,
        user=session.user,
        title=session.title,
        tags=session.tags,
        counter=session.counter,
        meta=session.meta,
        created=session.created,
        active=session.active,
        idle=session.idle,
        epoch=session.epoch,
        version=session.version - _moves(bundle),
        fence=fence,
        lease_until=FOREVER,
        holder=IMPORTER,
    )


def _moves(bundle: Bundle) -> int:
    """Count the commits after which the version is one higher: all but the end."""
    moves, head = 0, 1
    for branch in bundle.branches:
        if branch.former is not None:
            moves += 1 + (head != branch.former)
        moves += -(-branch.entries // BATCH)
        head = branch.id
    return moves + (head != bundle.session.branch)


def _sizes(branch: ArchivedBranch) -> Iterator[int]:
    """Return how many entries of a branch go into each commit, one by one: the number is only a claim."""
    return (min(BATCH, branch.entries - first) for first in range(0, branch.entries, BATCH))


def _record(line: ArchivedEntry, counted: Record) -> Record:
    """Put the archived id and bytes into a record; a damaged entry is a note under its id."""
    if line.damaged:
        return structs.replace(counted, id=line.id or str(ids.message_id()))
    return structs.replace(counted, id=line.id, kind=line.kind, body=bytes(line.body))


def _branch(branch: ArchivedBranch) -> Branch:
    return Branch(
        id=branch.id,
        parent=branch.parent,
        fork_seq=branch.fork_seq,
        created=branch.created,
        name=branch.name,
        operation=branch.operation,
        former=branch.former,
    )
