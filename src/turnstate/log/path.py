"""Paths: reading the entries from the root of a session to a head.

A path is a list of spans (runs of entries on a branch), newest first. Sequence numbers continue across
forks, so a number identifies a position on a path whatever branches it crosses. Most paths are one span.

Everything that reads a log goes through here: walking a path page by page, decoding rows, and finding the
newest cut that holds. A damaged row has no entry; `Damage` collects such rows and reports them to the user.

`load` reads the part that windows are made of. The newest cut carries the cuts that may serve other limits,
so opening a long session reads one cut and the messages that the cuts serving the limit keep. If no cut
serves the limit, it reads from the root.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from ..codec import decode_entry
from ..context.calls import is_shown_as
from ..context.view import in_force
from ..entry import Answer, Cut, Decision, Entry, Revert
from ..errors import NewerFormat, TurnstateError
from ..ids import MessageId
from ..message import Message
from ..stores.port import Log, Reads
from ..stores.values import MESSAGE, Address, BranchRow, Change, Hit, Position, Receipt, Row, SessionRow, Span
from ..threads import READ, off_loop
from .fold import Loaded

PAGE = 1_000
"""The most rows of one read."""

END = (1 << 31) - 1
"""A sequence number that no entry reaches in any store."""

CUTS = ("cut", "compaction", "revert")
"""The kinds of entries that decide which cut holds."""

LATEST = ("prompt", "bootstrap", "model", "usage")
"""The kinds of entries whose newest one is in force, wherever it is on the path."""

_SHOWN = (MESSAGE, "answer")


def spans(branches: Iterable[BranchRow], head: Position) -> list[Span]:
    """Return the runs of entries that lead to a head, newest first."""
    known = {branch.id: branch for branch in branches}
    path, at, last = list[Span](), known.get(head.branch), head.seq
    while at is not None:
        if last > at.fork_seq:
            path.append(Span(at.id, at.fork_seq + 1, last))
        last = min(last, at.fork_seq)
        at = known.get(at.parent) if at.parent is not None else None
    return path


def between(path: Sequence[Span], first: int, last: int) -> list[Span]:
    """Return the part of a path from one number to another, inclusive, newest span first."""
    clipped = (Span(span.branch, max(span.first, first), min(span.last, last)) for span in path)
    return [span for span in clipped if span.first <= span.last]


async def path_to(log: Reads, at: Address, head: Position) -> list[Span]:
    """Return the spans that lead to a head, newest first."""
    if head.branch == 1:  # the first root has no parent, so there is no need to read the branches
        return [Span(1, 1, head.seq)] if head.seq else []
    return spans(await log.branches(at), head)


async def tip(log: Reads, at: Address, branch: BranchRow) -> Position:
    """Return the position of the last entry of a branch, or of the entry that it forked after."""
    own = Span(branch.id, branch.fork_seq + 1, END)
    rows = await log.read(at, own, limit=1, newest=True)
    return Position(branch.id, rows[0].seq if rows else branch.fork_seq)


async def rows_forwards(
    log: Reads, at: Address, path: Sequence[Span], *, page: int = PAGE, kinds: Sequence[str] | None = None
) -> AsyncGenerator[Row, None]:
    """Yield the rows of a path from its root to its head; pass a smaller page if few rows are wanted."""
    for span in reversed(path):
        first = span.first
        while first <= span.last:
            rows = await log.read(at, Span(span.branch, first, span.last), limit=page, kinds=kinds)
            if not rows:
                break
            for row in rows:
                yield row
            first, page = rows[-1].seq + 1, min(2 * page, PAGE)


async def rows_backwards(
    log: Reads, at: Address, path: Sequence[Span], *, page: int = PAGE
) -> AsyncGenerator[Row, None]:
    """Yield the rows of a path from its head to its root; pass a smaller page if few rows are wanted."""
    async for rows in pages_backwards(log, at, path, page=page):
        for row in reversed(rows):
            yield row


async def pages_backwards(
    log: Reads, at: Address, path: Sequence[Span], *, page: int = PAGE
) -> AsyncGenerator[list[Row], None]:
    """Yield pages of rows from the head of a path to its root; rows within a page are in log order."""
    for span in path:
        last = span.last
        while last >= span.first:
            rows = await log.read(at, Span(span.branch, span.first, last), limit=page, newest=True)
            if not rows:
                break
            yield rows
            last, page = rows[0].seq - 1, min(2 * page, PAGE)


async def cut_in_force(
    log: Reads, at: Address, path: Sequence[Span], newest: Mapping[str, Row] | None = None
) -> Row | None:
    """Return the newest cut of a path that was not reverted; passing `newest` saves a read."""
    marks = await log.newest(at, path, CUTS) if newest is None else newest
    row = max((marks[kind] for kind in CUTS if kind in marks), key=lambda one: one.seq, default=None)
    entry = await read_entry(row) if row and row.kind == "revert" else None
    if not isinstance(entry, Revert):
        return row
    for span in between(path, entry.former, entry.former):  # a revert names the cut that holds again
        return next(iter(await log.read(at, span)), None)
    return None


def entry_of(row: Row) -> Entry | None:
    """Return the entry of a row; None if it is damaged."""
    try:
        return decode_entry(row.kind, row.body) if not row.damaged else None
    except NewerFormat:
        raise
    except TurnstateError:
        return None


async def entries_of(rows: Sequence[Row]) -> list[Entry | None]:
    """Return the entries of rows, None for damaged rows; large inputs are decoded in a thread."""
    if sum(len(row.body) for row in rows) > READ:
        return await off_loop(lambda: list(map(entry_of, rows)), large=True)
    return list(map(entry_of, rows))


async def read_entry(row: Row) -> Entry | None:
    """Return the entry of a row, decoded in a thread if it is large; None if it is damaged."""
    return (await entries_of([row]))[0]


def message_of(row: Row) -> Message | None:
    """Return the message of a row; None if it holds another kind of entry or is damaged."""
    entry = entry_of(row) if row.kind == MESSAGE else None
    return entry if isinstance(entry, Message) else None


async def messages_of(rows: Sequence[Row]) -> list[Message]:
    """Return the messages among rows."""
    entries = await entries_of([row for row in rows if row.kind == MESSAGE])
    return [entry for entry in entries if isinstance(entry, Message)]


async def shown_messages(rows: Sequence[Row]) -> list[Message]:
    """Return the messages among rows, including the tool messages that show answers of the core."""
    entries = await entries_of([row for row in rows if row.kind in _SHOWN])
    shown = (entry.message if isinstance(entry, Answer) else entry for entry in entries)
    return [message for message in shown if isinstance(message, Message)]


class Damage:
    """The positions of entries that are lost, and of entries that an index no longer leads to.

    An entry that is read intact later, after a repair, is no longer reported.
    """

    def __init__(self) -> None:
        self.lost = set[Position]()
        self.recovered = set[Position]()

    def check(self, rows: Iterable[Row]) -> None:
        """Record how rows were read."""
        for row in rows:
            if row.damaged or row.recovered:
                (self.lost if row.damaged else self.recovered).add(Position(row.branch, row.seq))
            elif self.lost or self.recovered:
                self.lost.discard(Position(row.branch, row.seq))
                self.recovered.discard(Position(row.branch, row.seq))

    def notices(self, undecoded: Iterable[Row] = ()) -> list[str]:
        """Return the notices for the user; intact entries that cannot be decoded also count as lost."""
        lost = self.lost | {Position(row.branch, row.seq) for row in undecoded}
        notices = list[str]()
        if lost:
            notices.append(f"{len(lost)} damaged entries were left out; run `turnstate verify`")
        if self.recovered:
            notices.append(
                f"an index is damaged: {len(self.recovered)} entries were found only by a scan of the whole "
                "store; run `turnstate verify`"
            )
        return notices


class WatchedReads:
    """Reads a log and records its damaged rows."""

    def __init__(self, log: Reads, damage: Damage) -> None:
        self._reads, self._damage = log, damage

    async def read(
        self,
        at: Address,
        span: Span,
        *,
        limit: int | None = None,
        newest: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Return a run of entries in order; with a limit, only the first or the newest ones."""
        rows = await self._reads.read(at, span, limit=limit, newest=newest, kinds=kinds)
        self._damage.check(rows)
        return rows

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries with these ids that exist, in the order of the log."""
        rows = await self._reads.find(at, ids)
        self._damage.check(rows)
        return rows

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path; the newest span comes first."""
        found = await self._reads.newest(at, spans, kinds)
        self._damage.check(found.values())
        return found

    async def branches(self, at: Address) -> list[BranchRow]:
        """Return all branches of a session in the order of their creation."""
        return await self._reads.branches(at)


class WatchedLog(WatchedReads):
    """A log that records damaged rows while it is read."""

    def __init__(self, log: Log, damage: Damage) -> None:
        super().__init__(log, damage)
        self._log = log

    async def commit(self, change: Change) -> Receipt:
        """Commit a change atomically; if a check fails, raise its error and change nothing."""
        return await self._log.commit(change)

    async def search(
        self,
        tenant: str,
        words: Sequence[str],
        *,
        user: str | None,
        session: str | None = None,
        before: int | None,
        limit: int,
    ) -> list[Hit]:
        """Return the entries that contain all the words, newest first, starting after a mark."""
        return await self._log.search(tenant, words, user=user, session=session, before=before, limit=limit)


# Loading: from the first message that a cut serving the limit keeps, or from the root if no cut serves it.

_FEW = 4  # rows per read when looking for leading system messages

Serving = Callable[[Sequence[Decision]], list[Cut]]
"""Returns the cuts in force that a window may be made from; none if everything is needed."""


async def load(log: Reads, row: SessionRow, serving: Serving | None = None) -> Loaded:
    """Load the part of a path that the cuts from `serving` need; by default, from the newest cut on."""
    path = await path_to(log, row.address, row.head)
    marks = await log.newest(row.address, path, (*CUTS, *LATEST))
    mark = await cut_in_force(log, row.address, path, marks)
    pinned, first = await _start(log, row.address, path, mark, serving)
    loaded = Loaded(path, first=first)
    loaded.head = Position(row.branch, first - 1)
    early = [marks[kind] for kind in LATEST if kind in marks and marks[kind].seq < first]
    system = await leading(log, row.address, path, first)
    before = [*early, *system, *pinned]
    for one, entry in zip(before, await entries_of(before), strict=True):
        loaded.recall(one, entry)
    loaded.start()
    for span in reversed(between(path, first, row.seq)):
        rows = await log.read(row.address, span)
        loaded.extend(rows, await entries_of(rows))
    loaded.head, loaded.active = row.head, row.active
    return loaded


async def leading(log: Reads, at: Address, path: Sequence[Span], end: int) -> list[Row]:
    """Return the leading system messages of a conversation that are before the part to load."""
    found, limit = list[Row](), 1
    for span in reversed(between(path, 1, end - 1)):
        place = span.first
        while rows := await log.read(at, Span(span.branch, place, span.last), limit=limit):
            for row in rows:
                for message in await messages_of([row]):
                    if message.role != "system":
                        return found
                    found.append(row)
            place, limit = rows[-1].seq + 1, _FEW - 1  # with the first row, that makes a whole read
    return found


async def _start(
    log: Reads, at: Address, path: Sequence[Span], mark: Row | None, serving: Serving | None
) -> tuple[list[Row], int]:
    """Return the messages that usable cuts pinned, and where to start reading: at the root without a cut."""
    newest = await read_entry(mark) if mark else None
    if mark is None or not isinstance(newest, Cut):
        return [], 1
    cuts = serving(in_force([newest])) if serving else [newest]
    named = [id for cut in cuts for id in (cut.kept_from or cut.covers[1], *cut.pinned) if id]
    found = {row.id: row for row in await log.find(at, list(dict.fromkeys(named)))} if named else {}
    starts, pinned = list[int](), dict[MessageId, Row]()
    for cut in cuts:
        rows = {id: row for id in cut.pinned if (row := found.get(id)) and await messages_of([row])}
        start = await _first_kept(log, at, between(path, 1, mark.seq), cut, found)
        if start is None and cut is newest and cut.kept_from is None:
            start = mark.seq  # it keeps what comes after itself
        if start is None or len(rows) < len(cut.pinned):
            return [], 1
        starts.append(start)
        pinned |= rows
    first = min(starts, default=1)
    early = (row for row in pinned.values() if row.seq < first)
    return sorted(early, key=lambda row: row.seq), first


async def _first_kept(
    log: Reads, at: Address, path: Sequence[Span], cut: Cut, found: Mapping[str, Row]
) -> int | None:
    """Return the number of the first entry that a cut kept; None if it cannot be found."""
    if cut.kept_from is None:
        last = found.get(cut.covers[1]) if cut.asked.get("operation") != "clear" else None
        return last.seq + 1 if last else None
    row = found.get(cut.kept_from)
    if row is None or not await messages_of([row]):
        row = await _late_results(log, at, path, cut)
    return row.seq if row else None


async def _late_results(log: Reads, at: Address, path: Sequence[Span], cut: Cut) -> Row | None:
    """Return the late results that a cut kept first; they are shown as a note with its own id."""
    async for row in rows_backwards(log, at, path):
        for message in await messages_of([row]):
            if cut.kept_from and is_shown_as(message, cut.kept_from):
                return row
    return None
