"""Turns a parcel, which names a place in the log, into the record that an engine takes.

Only messages are handed over, including the answers that Turnstate gave to calls. Prompts belong to the
program, and a bootstrap came from the engine itself, so neither is included. Messages are complete, even
if a window shortens their outputs. A damaged entry is left out with a warning; an entry that a newer
version wrote stops the delivery, since it is not lost.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from ..entry import Answer, Cut, Summary
from ..log.path import between, cut_in_force, path_to, read_entry, rows_forwards
from ..log.records import Ending, Eviction
from ..message import Message
from ..stores.port import Log
from ..stores.values import MESSAGE, Address, SessionRow, Span
from .port import Evicted, SessionRecord

_log = logging.getLogger(__name__)


async def record(log: Log, row: SessionRow, key: str, ending: Ending) -> SessionRecord:
    """Return the record of a session that ended; its messages are read lazily."""
    path = await path_to(log, row.address, ending.head)
    return SessionRecord(
        key=key,
        tenant=row.tenant,
        session=row.id,
        user=ending.user,
        epoch=ending.epoch,
        messages=_Messages(log, row.address, path),
        since=ending.started,
        reason=ending.reason,
        started=ending.started,
        ended=ending.ended,
        summary=await _last_summary(log, row.address, path),
    )


async def evicted(log: Log, row: SessionRow, key: str, eviction: Eviction) -> Evicted:
    """Return the messages that a cut removed from the window; they are read lazily."""
    path = await path_to(log, row.address, eviction.head)
    places = {found.id: found.seq for found in await log.find(row.address, [eviction.first, eviction.last])}
    leaving = between(path, places.get(eviction.first, 1), places.get(eviction.last, eviction.seq))
    return Evicted(
        key=key,
        tenant=row.tenant,
        session=row.id,
        user=row.user,
        epoch=eviction.epoch,
        messages=_Messages(log, row.address, leaving),
        since=row.created,
    )


class _Messages:
    """The messages of a path, read page by page on every iteration."""

    def __init__(self, log: Log, at: Address, path: Sequence[Span]) -> None:
        self._log, self._at, self._path = log, at, tuple(path)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for row in rows_forwards(self._log, self._at, self._path):
            if row.kind not in (MESSAGE, "answer"):
                continue
            entry = await read_entry(row)
            shown = entry.message if isinstance(entry, Answer) else entry
            if isinstance(shown, Message):
                yield shown
            elif entry is None:
                _log.warning(
                    "session %s: message %s is damaged and left out; run `turnstate verify`",
                    self._at.session,
                    row.id,
                )


async def _last_summary(log: Log, at: Address, path: Sequence[Span]) -> str:
    """Return the summary of the evicted messages at the end of a path."""
    row = await cut_in_force(log, at, path)
    cut = await read_entry(row) if row else None
    if not isinstance(cut, Cut):
        return ""
    found = (await log.newest(at, path, ("summary",))).get("summary")
    summary = await read_entry(found) if found else None
    return summary.shown if isinstance(summary, Summary) and summary.cut == cut.id else cut.summary
