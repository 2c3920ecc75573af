"""Imports a session of an archive into a store, all or nothing.

The session is written in its original order, branch by branch, each from its fork point, in commits of many
entries. Until the last commit, a lease that never expires protects it, under a special holder name: no one
else can write to it, and the next import recognizes an interrupted one and starts over. The initial version
is chosen so that the session ends with its original version.

An archive is not trusted: token counts are computed from the text, and no memory is allocated just because
a line announces a size.
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
from ..entry import Entry, ModelChange, Note
from ..errors import AlreadyExists, Busy, Fenced, NotFound
from ..log.records import counter_of
from ..log.records import records as make_records
from ..session.names import OWNERS
from ..stores.port import Store
from ..stores.values import FOREVER, BranchRow, Change, Fork, Lease, Position, Record, SessionRow
from ..tokens import counter as counter_named
from .format import ArchivedBranch, ArchivedEntry, ArchivedSession
from .read import Bundle

BATCH = 64
"""Entries in a commit: enough to make the fsync cheap, few enough to be held in memory."""

IMPORTER = "turnstate import"
_DAMAGED = Note("This entry was damaged when it was exported.")


class ImportResult(Struct, frozen=True):
    """The result for a session: imported, known (it exists unchanged), or skipped (another has its id)."""

    id: str
    result: Literal["imported", "known", "skipped"]
    entries: int


def is_incomplete(row: SessionRow) -> bool:
    """Return True if the import of a session is in progress or was interrupted."""
    return row.holder == IMPORTER and row.lease_until == FOREVER


async def restore(
    store: Store, tenant: str, bundle: Bundle, *, now: int, skip_existing: bool = False
) -> ImportResult:
    """Write a session into a store. Raise AlreadyExists if another session has its id."""
    entries = sum(branch.entries for branch in bundle.branches)
    row = _row(tenant, bundle, fence=now)
    importing = _SessionImport(store, row, bundle.session)
    try:
        if other := await importing.begin(bundle):
            if other == "skipped" and not skip_existing:
                raise AlreadyExists(
                    f"another session {row.id} exists already; pass --skip-existing to skip it"
                )
            return ImportResult(row.id, other, entries)
        await importing.write(bundle)
    except (Fenced, NotFound):
        raise Busy(f"session {row.id} was taken over by another import; wait for that one") from None
    return ImportResult(row.id, "imported", entries)


async def _created(store: Store, row: SessionRow, bundle: Bundle) -> Literal["known", "skipped"] | None:
    """Create the session, replacing an interrupted import; return the result if a complete one exists."""
    try:
        await store.create(row)
    except AlreadyExists:
        known = await store.get(row.address)
        if not is_incomplete(known):
            return "known" if await _is_same(store, known, bundle) else "skipped"
        await store.remove(row.address)
        await store.create(row)
    return None


async def _is_same(store: Store, known: SessionRow, bundle: Bundle) -> bool:
    """Return True if a stored session is the archived one; its title, tags and metadata may differ."""
    session = bundle.session
    if (known.created, known.epoch, known.version, known.branch, known.seq) != (
        *(session.created, session.epoch, session.version, session.branch),
        bundle.branches[session.branch - 1].tip,
    ):
        return False
    return await store.branches(known.address) == [_branch(branch) for branch in bundle.branches]


class _SessionImport:
    """Writes one session, and removes it if that fails."""

    def __init__(self, store: Store, row: SessionRow, session: ArchivedSession) -> None:
        self._store, self._row, self._session = store, row, session
        self._models = dict[int, list[tuple[int, ModelChange]]]()  # by branch, with their sequence numbers
        self._head = Position(1, 0)

    async def begin(self, bundle: Bundle) -> Literal["known", "skipped"] | None:
        """Create the session, unless it exists already."""
        beginning = asyncio.ensure_future(_created(self._store, self._row, bundle))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            if await _finished(beginning) and beginning.result() is None:
                await self._roll_back()
            raise

    async def write(self, bundle: Bundle) -> None:
        """Write all branches and entries, and release the lease."""
        try:
            await self._branches(bundle)
            if self._head.branch != self._session.branch:
                await self._commit(select=self._session.branch)
            if self._session.ended is not None:
                await self._commit(end=self._session.reason, now=self._session.ended)
        except BaseException:
            await self._roll_back()
            raise
        lease = Lease(fence=self._row.fence, until=FOREVER)
        # Keep the time of the last activity: an import is not activity.
        await self._store.release(self._row.address, lease, now=self._row.active)

    async def _roll_back(self) -> None:
        """Remove what was written, even if canceled; what cannot be removed stays marked as incomplete."""
        await _finished(asyncio.ensure_future(self._remove()))

    async def _remove(self) -> None:
        """Remove what was written, unless another import has started over."""
        known = await self._store.get(self._row.address)
        if is_incomplete(known) and known.fence == self._row.fence:
            await self._store.remove(self._row.address)

    async def _branches(self, bundle: Bundle) -> None:
        entries = bundle.entries()
        for branch in bundle.branches:
            if branch.former is not None:
                await self._fork(branch, branch.former)
            model, own = self._model_before(bundle, branch), list[tuple[int, ModelChange]]()
            self._models[branch.id] = own
            for size in _sizes(branch):
                pairs = [*islice(entries, size)]
                records = await self._records(pairs, model)
                own += [(line.seq, entry) for line, entry in pairs if isinstance(entry, ModelChange)]
                model = own[-1][1] if own else model
                await self._commit(select=branch.id, records=records)

    def _model_before(self, bundle: Bundle, branch: ArchivedBranch) -> ModelChange | None:
        """Return the model in force where a branch begins."""
        parent, seq = branch.parent, branch.fork_seq
        while parent is not None:
            if before := [model for number, model in self._models[parent] if number <= seq]:
                return before[-1]
            seq = min(seq, bundle.branches[parent - 1].fork_seq)
            parent = bundle.branches[parent - 1].parent
        return None

    async def _records(
        self, pairs: list[tuple[ArchivedEntry, Entry | None]], model: ModelChange | None
    ) -> tuple[Record, ...]:
        """Return records with the archived ids and bytes, and our own token counts."""
        counter = counter_of(model) if model else counter_named(self._session.counter)
        counted = await make_records([entry or _DAMAGED for _, entry in pairs], counter, Policy())
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


async def _finished(work: asyncio.Future[Any]) -> bool:
    """Wait for work that must not be left half done; return True if it succeeded."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return not work.cancelled() and work.exception() is None


def _row(tenant: str, bundle: Bundle, *, fence: int) -> SessionRow:
    session = bundle.session
    return SessionRow(
        tenant=OWNERS + tenant if session.is_state else tenant,
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
    """Return the number of commits that raise the version: all but the end of the session."""
    moves, head = 0, 1
    for branch in bundle.branches:
        if branch.former is not None:
            moves += 1 + (head != branch.former)
        moves += -(-branch.entries // BATCH)
        head = branch.id
    return moves + (head != bundle.session.branch)


def _sizes(branch: ArchivedBranch) -> Iterator[int]:
    """Yield the sizes of the commits of a branch, lazily: the announced number is only a claim."""
    return (min(BATCH, branch.entries - first) for first in range(0, branch.entries, BATCH))


def _record(line: ArchivedEntry, counted: Record) -> Record:
    """Return a record with the archived id and bytes; a damaged entry becomes a note with its id."""
    if line.damaged:
        return structs.replace(counted, id=line.id or str(ids.message_id()))
    return structs.replace(counted, id=line.id, kind=line.kind, body=bytes(line.body))


def _branch(branch: ArchivedBranch) -> BranchRow:
    return BranchRow(
        id=branch.id,
        parent=branch.parent,
        fork_seq=branch.fork_seq,
        created=branch.created,
        name=branch.name,
        operation=branch.operation,
        former=branch.former,
    )
