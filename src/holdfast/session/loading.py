"""Loading: from the newest cut on, or from the root where that cut cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from ..context.rounds import note
from ..decision import Cut
from ..entry import Entry, decode
from ..errors import HoldfastError, NewerFormat
from ..message import Message
from ..stores.port import Log
from ..stores.values import MESSAGE, Address, Position, Row, SessionRow, Span
from .loaded import Loaded
from .path import between, spans

__all__ = ["Settings", "entry_of", "load", "message_of", "path_to", "refreshed", "rows_backwards"]

PAGE = 1_000
FEW = 4
_MARKS = ("cut", "prompt", "bootstrap")


class Settings(Struct, frozen=True):
    """What a cut must have been made under to be used."""

    limit: int
    policy: str
    counter: str

    def fit(self, cut: Cut) -> bool:
        """Tell whether a cut was made under these settings."""
        return (cut.limit, cut.policy, cut.counter) == (self.limit, self.policy, self.counter)


async def path_to(log: Log, at: Address, head: Position) -> list[Span]:
    """Give the spans that lead to a head, the newest first."""
    if head.branch == 1:  # the first root: no need to ask
        return [Span(1, 1, head.seq)] if head.seq else []
    return spans(await log.branches(at), head)


async def load(log: Log, row: SessionRow, settings: Settings | None) -> Loaded:
    """Load a path for windows under these settings; without any, from its newest cut on."""
    path = await path_to(log, row.address, row.head)
    marks = await log.newest(row.address, path, _MARKS)
    before = await _before(log, row.address, path, marks.get("cut"), settings)
    first = before[-1].seq if before else 1
    loaded = Loaded(path, first=first)
    loaded.head = Position(row.branch, first - 1)
    early = [mark for kind, mark in marks.items() if kind != "cut" and mark.seq < first]
    leading = await _leading(log, row.address, path, first)
    for one in [*early, *leading, *before[:-1]]:
        loaded.recall(one)
    for span in reversed(between(path, first, row.seq)):
        for one in await log.read(row.address, span):
            loaded.add(one)
    loaded.head = row.head
    return loaded


async def refreshed(log: Log, row: SessionRow, loaded: Loaded) -> bool:
    """Fold in what was written since; tell False where the head is on another path now."""
    if row.branch != loaded.head.branch or row.seq < loaded.head.seq:
        return False
    if row.seq > loaded.head.seq:
        span = Span(row.branch, loaded.head.seq + 1, row.seq)
        for one in await log.read(row.address, span):
            if one.seq > loaded.head.seq:  # what this handle wrote meanwhile is there already
                loaded.add(one)
    return True


async def rows_backwards(log: Log, at: Address, path: Sequence[Span]) -> AsyncIterator[Row]:
    """Walk a path from its head to its root, page by page."""
    for span in path:
        last = span.last
        while last >= span.first:
            rows = await log.read(at, Span(span.branch, span.first, last), limit=PAGE, newest=True)
            if not rows:
                break
            for row in reversed(rows):
                yield row
            last = rows[0].seq - 1


async def _leading(log: Log, at: Address, path: Sequence[Span], end: int) -> list[Row]:
    """Give the system messages that a conversation begins with, where they are not loaded otherwise."""
    found = list[Row]()
    for span in reversed(between(path, 1, end - 1)):
        place = span.first
        while rows := await log.read(at, Span(span.branch, place, span.last), limit=FEW):
            for row in rows:
                message = message_of(row)
                if message is not None and message.role != "system":
                    return found
                found += [row] if message else []
            place = rows[-1].seq + 1
    return found


def message_of(row: Row) -> Message | None:
    """Give the message of a row; none where it is something else, or damaged."""
    entry = entry_of(row) if row.kind == MESSAGE else None
    return entry if isinstance(entry, Message) else None


async def _before(
    log: Log, at: Address, path: Sequence[Span], mark: Row | None, settings: Settings | None
) -> list[Row]:
    """Give the messages that a usable cut pinned, and last the one that it kept first; else nothing."""
    cut = _cut(mark)
    if mark is None or cut is None or (settings is not None and not settings.fit(cut)):
        return []
    found = await log.find(at, [cut.kept_from, *cut.pinned])
    rows = {row.id: row for row in found if message_of(row)}
    if any(id not in rows for id in cut.pinned):
        return []
    kept = rows.pop(cut.kept_from, None) or await _late(log, at, between(path, 1, mark.seq), cut)
    return [*sorted(rows.values(), key=lambda row: row.seq), kept] if kept else []


async def _late(log: Log, at: Address, path: Sequence[Span], cut: Cut) -> Row | None:
    """Give the late results that a cut kept first: they are shown as a note, which has an id of its own."""
    async for row in rows_backwards(log, at, path):
        message = message_of(row)
        if message and message.tool_results and note(message, message.tool_results[0], 0).id == cut.kept_from:
            return row
    return None


def _cut(mark: Row | None) -> Cut | None:
    entry = entry_of(mark) if mark else None
    return entry if isinstance(entry, Cut) else None


def entry_of(row: Row) -> Entry | None:
    """Give the entry of a row; none where it is damaged."""
    try:
        return decode(row.kind, row.body) if not row.damaged else None
    except NewerFormat:
        raise
    except HoldfastError:
        return None
