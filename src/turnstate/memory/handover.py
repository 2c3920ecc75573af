"""Handover: a parcel names a place in the log; here the log is read and becomes what an engine takes.

Only messages are handed over, with the answers that the core gave for calls: a prompt is the program's,
and a bootstrap came from the engine itself.
They come as they were said, so outputs that a window shows shortened are whole. An entry that is
damaged is left out and told; one that a newer version wrote stops the delivery, since it is not lost.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial

from ..codec import decode_entry
from ..entry import Answer, Cut, Summary
from ..errors import NewerFormat, TurnstateError
from ..log.outbox import Ending, Eviction
from ..log.path import between
from ..message import Message
from ..session.loading import path_to, standing_cut
from ..stores.port import Log
from ..stores.values import MESSAGE, Address, Row, SessionRow, Span
from ..tokens.exact import INLINE, off_loop
from .port import Evicted, SessionRecord

__all__ = ["evicted", "record"]

PAGE = 500
"""Entries that are read at once."""

_log = logging.getLogger(__name__)


async def record(log: Log, row: SessionRow, key: str, ending: Ending) -> SessionRecord:
    """Give the session that ended, its messages still to be read."""
    path = await path_to(log, row.address, ending.head)
    return SessionRecord(
        key=key,
        tenant=row.tenant,
        session=row.id,
        user=ending.user,
        epoch=ending.epoch,
        messages=_Messages(log, row.address, path),
        reason=ending.reason,
        started=ending.started,
        ended=ending.ended,
        summary=await _standing_summary(log, row.address, path),
    )


async def evicted(log: Log, row: SessionRow, key: str, eviction: Eviction) -> Evicted:
    """Give what a cut took out of the window, its messages still to be read."""
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
    )


class _Messages:
    """The messages of a path, read page by page whenever somebody walks it."""

    def __init__(self, log: Log, at: Address, path: Sequence[Span]) -> None:
        self._log, self._at, self._path = log, at, tuple(reversed(path))

    async def __aiter__(self) -> AsyncIterator[Message]:
        for span in self._path:
            first = span.first
            while first <= span.last:
                rows = await self._log.read(self._at, Span(span.branch, first, span.last), limit=PAGE)
                for row in rows:
                    if message := await off_loop(partial(self._read, row), large=len(row.body) > INLINE):
                        yield message
                first = rows[-1].seq + 1 if rows else span.last + 1

    def _read(self, row: Row) -> Message | None:
        if row.kind not in (MESSAGE, "answer"):
            return None
        if not row.damaged:
            try:
                entry = decode_entry(row.kind, row.body)
            except NewerFormat:
                raise
            except TurnstateError as error:
                reason = str(error)
            else:
                shown = entry.message if isinstance(entry, Answer) else entry
                return shown if isinstance(shown, Message) else None
        else:
            reason = "its bytes do not match their checksum"
        _log.warning("session %s: message %s is left out: %s", self._at.session, row.id, reason)
        return None


async def _standing_summary(log: Log, at: Address, path: Sequence[Span]) -> str:
    """Give the text that stood for the evicted messages at the end of a path."""
    cut = _entry(await standing_cut(log, at, path))
    summary = _entry((await log.newest(at, path, ("summary",))).get("summary"))
    if not isinstance(cut, Cut):
        return ""
    return summary.shown if isinstance(summary, Summary) and summary.cut == cut.id else cut.summary


def _entry(row: Row | None) -> object:
    if row is None or row.damaged:
        return None
    try:
        return decode_entry(row.kind, row.body)
    except TurnstateError:
        return None
