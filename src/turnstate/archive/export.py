"""Exports sessions as the lines of an archive, page by page.

A log only grows, so it is enough to read the session and the tips of its branches consistently once:
the entries up to those tips stay the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable

from msgspec import Raw, Struct

from ..errors import Busy, NotFound, StoreDamaged, TurnstateError
from ..log.path import entry_of, tip
from ..session.names import OWNERS
from ..stores.port import Log, Store
from ..stores.values import Address, BranchRow, Row, SessionRow, Span
from .format import NOTHING, ArchivedBranch, ArchivedEntry, ArchivedSession, ArchiveEnd, ArchiveLine, Header
from .restore import is_incomplete

PAGE = 200


LeftOut = Callable[[Address, TurnstateError], object]
"""Told about a session that cannot be read; it may raise the error."""


async def archive(
    store: Store, sessions: AsyncIterable[Address], *, left_out: LeftOut | None = None
) -> AsyncIterator[Header | ArchiveLine]:
    """Yield the lines of an archive of sessions; `encode_line` turns one into text.

    With ``left_out``, a session whose description or branches cannot be read is told to it and left out.
    """
    count = 0
    yield Header()
    async for at in sessions:
        try:
            view = await _session_view(store, at)
        except (NotFound, StoreDamaged) as error:
            if left_out is None:
                raise
            left_out(at, error)
            continue
        async for line in _lines(store, at, view):
            yield line
        count += 1
    yield ArchiveEnd(sessions=count)


async def archived(store: Store, at: Address) -> AsyncIterator[ArchiveLine]:
    """Yield the lines of one session."""
    async for line in _lines(store, at, await _session_view(store, at)):
        yield line


async def _lines(store: Store, at: Address, moment: _SessionView) -> AsyncIterator[ArchiveLine]:
    if is_incomplete(moment.row):
        raise Busy(f"session {at.session} is being imported; wait for it, or import its archive again")
    yield _session(moment)
    for branch, last in moment.branches:
        yield _branch(branch, last)
    for branch, last in moment.branches:
        async for line in _entries(store, at, Span(branch.id, branch.fork_seq + 1, last)):
            yield line


class _SessionView(Struct, frozen=True):
    """A session and its branches with their tips, read consistently."""

    row: SessionRow
    branches: list[tuple[BranchRow, int]]


async def _session_view(store: Store, at: Address) -> _SessionView:
    row = await store.get(at)
    while True:
        branches = [
            (branch, row.seq if branch.id == row.branch else (await tip(store, at, branch)).seq)
            for branch in await store.branches(at)
        ]
        again = await store.get(at)
        if (again.head, again.version, again.epoch) == (row.head, row.version, row.epoch):
            return _SessionView(again, branches)
        row = again


async def _entries(log: Log, at: Address, span: Span) -> AsyncIterator[ArchivedEntry]:
    """Yield a line for every sequence number of a branch, even if there is nothing to read."""
    seq = span.first
    while seq <= span.last:
        rows = await log.read(at, Span(span.branch, seq, span.last), limit=PAGE)
        for row in rows:
            for missing in range(seq, row.seq):
                yield _lost(span.branch, missing)
            yield _entry(row)
            seq = row.seq + 1
        if not rows:
            for missing in range(seq, span.last + 1):
                yield _lost(span.branch, missing)
            return


def _session(moment: _SessionView) -> ArchivedSession:
    row = moment.row
    return ArchivedSession(
        id=row.id,
        user=row.user,
        title=row.title,
        tags=row.tags,
        counter=row.counter,
        meta=row.meta,
        created=row.created,
        active=row.active,
        idle=row.idle,
        epoch=row.epoch,
        version=row.version,
        branch=row.branch,
        ended=row.ended,
        reason=row.reason,
        branches=len(moment.branches),
        is_state=row.tenant.startswith(OWNERS),
    )


def _branch(branch: BranchRow, tip: int) -> ArchivedBranch:
    return ArchivedBranch(
        id=branch.id,
        parent=branch.parent,
        fork_seq=branch.fork_seq,
        created=branch.created,
        name=branch.name,
        operation=branch.operation,
        former=branch.former,
        entries=tip - branch.fork_seq,
    )


def _entry(row: Row) -> ArchivedEntry:
    damaged = entry_of(row) is None
    return ArchivedEntry(
        branch=row.branch,
        seq=row.seq,
        id=row.id,
        kind=row.kind,
        tokens=row.tokens,
        body=NOTHING if damaged else Raw(row.body),
        damaged=damaged,
    )


def _lost(branch: int, seq: int) -> ArchivedEntry:
    return ArchivedEntry(branch=branch, seq=seq, id="", kind="note", damaged=True)
