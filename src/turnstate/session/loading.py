"""Loading: from the newest cut on, or from the root where that cut cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import Struct

from ..codec import decode_entry
from ..context.rounds import is_shown_as
from ..entry import Answer, Cut, Entry, Revert
from ..errors import NewerFormat, TurnstateError
from ..log.path import between, spans
from ..message import Message
from ..stores.port import Log
from ..stores.values import MESSAGE, Address, Position, Row, SessionRow, Span
from ..tokens.exact import INLINE, off_loop
from .loaded import Loaded

__all__ = [
    "Settings",
    "entries_of",
    "entry_of",
    "load",
    "message_of",
    "messages_of",
    "path_to",
    "read_entry",
    "refreshed",
    "rows_backwards",
    "shown_messages",
    "standing_cut",
]

PAGE = 1_000
FEW = 4
_CUTS = ("cut", "compaction", "revert")
_HEADS = ("prompt", "bootstrap")
_SHOWN = (MESSAGE, "answer")


class Settings(Struct, frozen=True):
    """What a cut must have been made under to be used."""

    limit: int
    policy: str
    counter: str

    def fit(self, cut: Cut) -> bool:
        """Tell whether a cut was made under these settings, or holds under all."""
        return bool(cut.asked) or (cut.limit, cut.policy, cut.counter) == (
            self.limit,
            self.policy,
            self.counter,
        )


async def path_to(log: Log, at: Address, head: Position) -> list[Span]:
    """Give the spans that lead to a head, the newest first."""
    if head.branch == 1:  # the first root: no need to ask
        return [Span(1, 1, head.seq)] if head.seq else []
    return spans(await log.branches(at), head)


async def load(log: Log, row: SessionRow, settings: Settings | None) -> Loaded:
    """Load a path for windows under these settings; without any, from its newest cut on."""
    path = await path_to(log, row.address, row.head)
    marks = await log.newest(row.address, path, (*_CUTS, *_HEADS))
    mark = await _standing(log, row.address, path, marks)
    pinned, first = await _beginning(log, row.address, path, mark, settings)
    loaded = Loaded(path, first=first)
    loaded.head = Position(row.branch, first - 1)
    early = [marks[kind] for kind in _HEADS if kind in marks and marks[kind].seq < first]
    leading = await _leading(log, row.address, path, first)
    before = [*early, *leading, *pinned]
    for one, entry in zip(before, await entries_of(before), strict=True):
        loaded.recall(one, entry)
    for span in reversed(between(path, first, row.seq)):
        rows = await log.read(row.address, span)
        for one, entry in zip(rows, await entries_of(rows), strict=True):
            loaded.add(one, entry)
    loaded.head = row.head
    return loaded


async def refreshed(log: Log, row: SessionRow, loaded: Loaded) -> bool:
    """Fold in what was written since; tell False where the head is on another path now."""
    if row.branch != loaded.head.branch or row.seq < loaded.head.seq:
        return False
    if row.seq > loaded.head.seq:
        head, id = loaded.head, loaded.at_head  # it is read again: a store may have lost it and gone on
        rows = await log.read(row.address, Span(row.branch, head.seq, row.seq))
        if rows and rows[0].seq == head.seq and id not in ("", rows[0].id) and not rows[0].damaged:
            loaded.written_over = True
            return False
        if any(one.kind == "revert" for one in rows):
            return False  # what holds again may not be loaded
        for one, entry in zip(rows, await entries_of(rows), strict=True):
            if one.seq > loaded.head.seq:  # what this handle wrote meanwhile is there already
                loaded.add(one, entry)
    return True


async def standing_cut(log: Log, at: Address, path: Sequence[Span]) -> Row | None:
    """Give the newest cut of a path that was not taken back."""
    return await _standing(log, at, path, await log.newest(at, path, _CUTS))


async def _standing(log: Log, at: Address, path: Sequence[Span], marks: Mapping[str, Row]) -> Row | None:
    cuts = [marks[kind] for kind in _CUTS if kind in marks]
    newest = max(cuts, key=lambda row: row.seq, default=None)
    entry = await read_entry(newest) if newest else None
    if not isinstance(entry, Revert):
        return newest
    for span in between(path, entry.former, entry.former):
        return next(iter(await log.read(at, span)), None)
    return None


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
                for message in await messages_of([row]):
                    if message.role != "system":
                        return found
                    found.append(row)
            place = rows[-1].seq + 1
    return found


async def entries_of(rows: Sequence[Row]) -> list[Entry | None]:
    """Give the entries of rows, none where one is damaged; the loop goes on while much is decoded."""
    large = sum(len(row.body) for row in rows) > INLINE
    return await off_loop(lambda: [entry_of(row) for row in rows], large=large)


async def read_entry(row: Row) -> Entry | None:
    """Give the entry of a row; none where it is damaged."""
    return (await entries_of([row]))[0]


async def messages_of(rows: Sequence[Row]) -> list[Message]:
    """Give the messages among rows."""
    said = [row for row in rows if row.kind == MESSAGE]
    return [entry for entry in await entries_of(said) if isinstance(entry, Message)]


async def shown_messages(rows: Sequence[Row]) -> list[Message]:
    """Return the messages among rows, and those that answers of the core are shown as."""
    entries = await entries_of([row for row in rows if row.kind in _SHOWN])
    found = (entry.message if isinstance(entry, Answer) else entry for entry in entries)
    return [message for message in found if isinstance(message, Message)]


def message_of(row: Row) -> Message | None:
    """Give the message of a row; none where it is something else, or damaged."""
    entry = entry_of(row) if row.kind == MESSAGE else None
    return entry if isinstance(entry, Message) else None


async def _beginning(
    log: Log, at: Address, path: Sequence[Span], mark: Row | None, settings: Settings | None
) -> tuple[list[Row], int]:
    """Give the messages that a usable cut pinned, and where to begin to read: at the root, without one."""
    cut = await read_entry(mark) if mark else None
    if mark is None or not isinstance(cut, Cut) or (settings is not None and not settings.fit(cut)):
        return [], 1
    if cut.kept_from is None:
        return [], await _behind(log, at, mark, cut)
    found = await log.find(at, [cut.kept_from, *cut.pinned])
    rows = {row.id: row for row in found if await messages_of([row])}
    if any(id not in rows for id in cut.pinned):
        return [], 1
    kept = rows.pop(cut.kept_from, None) or await _late(log, at, between(path, 1, mark.seq), cut)
    return (sorted(rows.values(), key=lambda row: row.seq), kept.seq) if kept else ([], 1)


async def _behind(log: Log, at: Address, mark: Row, cut: Cut) -> int:
    """Return where to begin after a cut that kept nothing; words before it may not be covered by it."""
    if cut.asked.get("operation") != "clear" and cut.covers[1]:
        for row in await log.find(at, [cut.covers[1]]):
            return row.seq + 1
    return mark.seq


async def _late(log: Log, at: Address, path: Sequence[Span], cut: Cut) -> Row | None:
    """Give the late results that a cut kept first: they are shown as a note, which has an id of its own."""
    async for row in rows_backwards(log, at, path):
        for message in await messages_of([row]):
            if cut.kept_from and is_shown_as(message, cut.kept_from):
                return row
    return None


def entry_of(row: Row) -> Entry | None:
    """Give the entry of a row; none where it is damaged."""
    try:
        return decode_entry(row.kind, row.body) if not row.damaged else None
    except NewerFormat:
        raise
    except TurnstateError:
        return None
