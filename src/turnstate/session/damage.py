"""Damage: what a session's store could not read, or could only read by a scan, so that somebody is told.

Everything that a session reads of its log goes through `Watched`, which looks at the marks on the rows.
An entry that is read soundly later, since somebody repaired the store, is no longer told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..stores.port import Log
from ..stores.values import Address, Branch, Change, Hit, Position, Receipt, Row, Span

__all__ = ["Damage", "Watched"]


class Damage:
    """The places of entries that are lost, and of those that an index no longer leads to."""

    def __init__(self) -> None:
        self.lost = set[Position]()
        self.recovered = set[Position]()

    def saw(self, rows: Iterable[Row]) -> None:
        """Note how rows were read."""
        for row in rows:
            if row.damaged or row.recovered:
                (self.lost if row.damaged else self.recovered).add(Position(row.branch, row.seq))
            elif self.lost or self.recovered:
                self.lost.discard(Position(row.branch, row.seq))
                self.recovered.discard(Position(row.branch, row.seq))

    def notices(self, undecoded: Iterable[Row] = ()) -> list[str]:
        """Return what is to be told; entries whose bytes are whole and still make no sense are lost, too."""
        lost = self.lost | {Position(row.branch, row.seq) for row in undecoded}
        told = list[str]()
        if lost:
            told.append(f"{len(lost)} damaged entries were left out; run `turnstate verify`")
        if self.recovered:
            told.append(
                f"an index is damaged: {len(self.recovered)} entries were found only by a scan of the whole "
                "store; run `turnstate verify`"
            )
        return told


class Watched:
    """The log of a store, read under watch."""

    def __init__(self, log: Log, damage: Damage) -> None:
        self._log, self._damage = log, damage

    async def commit(self, change: Change) -> Receipt:
        """Take a change whole, or raise the first check that fails and take nothing."""
        return await self._log.commit(change)

    async def read(
        self, at: Address, span: Span, *, limit: int | None = None, newest: bool = False
    ) -> list[Row]:
        """Return a run of entries in order; with a limit the first ones, or the newest."""
        return self._seen(await self._log.read(at, span, limit=limit, newest=newest))

    async def find(self, at: Address, ids: Sequence[str]) -> list[Row]:
        """Return the entries with these ids, those that there are, in the order of the log."""
        return self._seen(await self._log.find(at, ids))

    async def newest(self, at: Address, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Row]:
        """Return the newest entry of each kind on a path, whose newest span comes first."""
        found = await self._log.newest(at, spans, kinds)
        self._damage.saw(found.values())
        return found

    async def branches(self, at: Address) -> list[Branch]:
        """Return all branches of a session in the order of their making."""
        return await self._log.branches(at)

    async def search(
        self, tenant: str, words: Sequence[str], *, user: str | None, before: int | None, limit: int
    ) -> list[Hit]:
        """Return the entries that hold all the words, newest first, from behind a mark on."""
        return await self._log.search(tenant, words, user=user, before=before, limit=limit)

    def _seen(self, rows: list[Row]) -> list[Row]:
        self._damage.saw(rows)
        return rows
