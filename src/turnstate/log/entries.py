"""Reads the log for people and programs: entries with their positions and times, messages page by page.

A reader names the branch whose path it wants and the entry to continue after. An id identifies an entry
regardless of its position, so it also serves as a page cursor: it stays valid whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from msgspec import Struct

from ..entry import Answer, Entry
from ..errors import NotFound
from ..ids import UNKNOWN_TIME, minted_at, utc
from ..message import Message
from ..stores.port import Reads
from ..stores.values import MESSAGE, Address, Position, Row, Span
from .path import (
    END,
    PAGE,
    between,
    entries_of,
    path_to,
    rows_forwards,
    shown_messages,
    tip,
)


class LogEntry(Struct, frozen=True, kw_only=True):
    """An entry of a log: its content, its position, and when it was written.

    ``entry`` is None if its bytes are damaged. ``time`` is the time of the message, or else the time at which
    the entry was written; None if it is unknown. Pass ``cursor`` as ``after`` to continue reading after
    this entry.
    """

    session: str
    branch: int
    seq: int
    id: str
    kind: str
    time: datetime | None
    tokens: int
    entry: Entry | None
    cursor: str


async def path_of(log: Reads, at: Address, head: Position, branch: int | None) -> list[Span]:
    """Return the spans that lead to the head, or to the end of a branch, newest first."""
    if branch is None or branch == head.branch:
        return await path_to(log, at, head)
    for known in await log.branches(at):
        if known.id == branch:
            return await path_to(log, at, await tip(log, at, known))
    raise NotFound(f"session {at.session} has no branch {branch}")


async def path_after(log: Reads, at: Address, path: Sequence[Span], id: str | None) -> list[Span]:
    """Return the part of a path after an entry; raise `NotFound` if the entry is not on the path."""
    if id is None:
        return list(path)
    for row in await log.find(at, [id]):
        if any(span.branch == row.branch and span.first <= row.seq <= span.last for span in path):
            return between(path, row.seq + 1, END)
        raise NotFound(f"entry {id} of session {at.session} is on another branch ({row.branch})")
    raise NotFound(f"session {at.session} has no entry {id}")


async def read_entries(
    log: Reads, at: Address, path: Sequence[Span], *, kinds: Sequence[str] | None, limit: int | None
) -> list[LogEntry]:
    """Return the first entries of a path, of the given kinds or of all kinds."""
    indexed = (
        kinds if kinds is not None and MESSAGE not in kinds else None
    )  # stores have no index of messages
    rows = list[Row]()
    if limit != 0:
        page = PAGE if limit is None else min(limit, PAGE)
        async for row in rows_forwards(log, at, path, page=page, kinds=indexed):
            if kinds is None or row.kind in kinds or row.damaged:
                rows.append(row)
            if len(rows) == limit:
                break
    return await log_entries(at, rows)


async def log_entries(at: Address, rows: Sequence[Row]) -> list[LogEntry]:
    """Return rows as entries with their positions and times."""
    return [
        LogEntry(
            session=at.session,
            branch=row.branch,
            seq=row.seq,
            id=row.id,
            kind=row.kind,
            time=time_of(row.id, entry),
            tokens=row.tokens,
            entry=entry,
            cursor=row.id,
        )
        for row, entry in zip(rows, await entries_of(rows), strict=True)
    ]


async def read_messages(log: Reads, at: Address, path: Sequence[Span], *, limit: int | None) -> list[Message]:
    """Return the first messages of a path, including answers given by the core."""
    if limit is None:
        return await shown_messages([row for span in reversed(path) for row in await log.read(at, span)])
    found = list[Message]()
    if not limit:
        return found
    async with aclosing(rows_forwards(log, at, path, page=min(limit, PAGE))) as rows:
        async for row in rows:
            found += await shown_messages([row])
            if len(found) == limit:
                break
    return found


async def last_messages(log: Reads, at: Address, path: Sequence[Span], count: int) -> list[Message]:
    """Return the last messages of a path, including answers given by the core."""
    last, page = list[Message](), min(count, PAGE)
    for span in path:
        end = span.last
        while len(last) < count and end >= span.first:
            rows = await log.read(at, Span(span.branch, span.first, end), limit=page, newest=True)
            if not rows:
                break
            last = await shown_messages(rows) + last
            end, page = rows[0].seq - 1, min(2 * page, PAGE)
    return last[-count:] if count else []


def time_of(id: str, entry: Entry | None) -> datetime | None:
    """Return the time of a message or answer, or else the time when the id was minted."""
    stamp = entry.timestamp if isinstance(entry, Message | Answer) else UNKNOWN_TIME
    if stamp != UNKNOWN_TIME:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    minted = minted_at(id)
    return None if minted is None else utc(minted)
