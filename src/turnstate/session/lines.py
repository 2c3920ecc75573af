"""What the line tracker knows about files, read once by a handle and then only as far as it is new.

A record is a `lines` entry, so it follows branches: after a rewind the tracker knows what it knew then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from ..conversation.edits import LineTracking
from ..conversation.line_tracker import FileLineTracker, track
from ..log.path import entries_of, path_to, rows_forwards
from ..stores.port import Reads
from ..stores.values import Position, Row, SessionRow, Span
from .info import SessionInfo
from .writer import SessionWriter

KINDS = ("lines",)


class LineRecords:
    """The records of the path to the head, as this handle has seen them last."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer
        self._seen: tuple[Position, dict[str, FileLineTracker]] | None = None

    async def read(self) -> dict[str, FileLineTracker]:
        """Return the records as they are now; only what is new on the path is read."""
        known, rows, head = await self._writer.read(self._new)
        for entry in await entries_of(rows):
            track(known, entry)
        self._seen = head, known
        return dict(known)

    async def _new(
        self, row: SessionRow, log: Reads
    ) -> tuple[dict[str, FileLineTracker], list[Row], Position]:
        """Return what was known, the rows since then, and the head; another task may read meanwhile."""
        path, known = None, dict[str, FileLineTracker]()
        if self._seen is not None:
            seen, records = self._seen
            if seen.branch == row.branch and seen.seq <= row.seq:
                known = dict(records)
                path = [Span(row.branch, seen.seq + 1, row.seq)] if seen.seq < row.seq else []
        if path is None:
            path = await path_to(log, row.address, row.head)
        found = [one async for one in rows_forwards(log, row.address, path, kinds=KINDS)]
        return known, found, row.head


class LinesOfSession(Protocol):
    """What a tracker needs of its session."""

    @property
    def info(self) -> SessionInfo: ...  # noqa: D102
    async def lines(self) -> dict[str, FileLineTracker]: ...  # noqa: D102
    async def record_lines(self, records: Mapping[str, FileLineTracker | None]) -> None: ...  # noqa: D102


class TrackedLines:
    """A line tracker, kept in step with its session: what is new in it is written, and it follows moves."""

    def __init__(self, session: LinesOfSession, root: Path, *, home: Path | None = None) -> None:
        self._session, self._branch = session, 0
        self.tracking = LineTracking(root, home=home, entries=lambda: session.info.seq)

    async def begin(self) -> None:
        """Take over what the log knows now, and write what an interrupted run could not.

        If the conversation moved to another branch, the tracker follows it.
        """
        known, branch = await self._session.lines(), self._session.info.branch
        if self._branch in (0, branch):
            self.tracking.known(known)
        else:
            self.tracking.follow(known)
        self._branch = branch
        await self.record()

    async def follow(self, put_back: Iterable[str | os.PathLike[str]] = ()) -> None:
        """Follow a move of the conversation, or a restore of files, whose changes are not the user's."""
        self.tracking.follow(await self._session.lines(), put_back)
        self._branch = self._session.info.branch
        await self.record()

    async def record(self) -> None:
        """Write what is new."""
        if new := self.tracking.unrecorded:
            await self._session.record_lines(new)
            self.tracking.recorded(new)
