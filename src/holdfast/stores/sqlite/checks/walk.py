"""The walk over a sound file: every session, what hangs loose, and the index for search.

Sessions are looked at by the dozen in one moment of a reader; one that is odd, or long, is looked at
closely, a page in a moment. What is found is looked at again, and mended, in a transaction of the writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar

import apsw

from ....errors import NotFound, StoreDamaged
from ...values import Address, Finding
from ..queries import query
from ..readers import Readers
from ..writer import Writer
from . import index
from .description import address_of, inspect_description
from .entries import PAGE, inspect_entries
from .inspection import Inspection
from .leftovers import inspect_keys, inspect_logs, inspect_orphans, inspect_parcels
from .lineage import inspect_head, inspect_lineage

__all__ = ["Walk", "session_keys"]

T = TypeVar("T")

DOZEN = 24
"""Sessions that are looked at in one moment."""


class Walk:
    """One check of everything."""

    def __init__(self, readers: Readers, writer: Writer, *, repair: bool) -> None:
        self._readers, self._writer, self._repair = readers, writer, repair
        self._found = list[Finding]()
        self._entries_are_sound = True

    async def findings(self, *, index_is_broken: bool = False) -> AsyncIterator[Finding]:
        """Give what is wrong, as it is found."""
        after: int | None = 0
        while after is not None:
            odd, after = await self._readers.run(partial(_glance, after=after))
            for session in odd:
                async for finding in self._session(session):
                    yield finding
        for check in (inspect_logs, inspect_orphans, inspect_parcels):
            await self._inspect(check)
            for finding in self._told():
                yield finding
        if index_is_broken or (self._entries_are_sound and not await self._index_agrees()):
            yield await self._index_is_wrong()

    async def rebuild_index(self) -> None:
        """Fill the index anew from the messages, a page in a transaction."""
        await self._writer.run(index.empty_index)
        after: int | None = 0
        while after is not None:
            after = await self._writer.run(partial(index.add_missing_words, after=after))

    async def _session(self, session: int) -> AsyncIterator[Finding]:
        at = await self._readers.run(partial(address_of, session=session))
        if at is None:
            return
        try:
            async for _ in self._looks(session, at):
                for finding in self._told():
                    yield finding
        except NotFound:  # it was removed meanwhile
            return

    async def _looks(self, session: int, at: Address) -> AsyncIterator[None]:
        """Look at a session closely, bit by bit."""

        async def inspect(check: Callable[[Inspection], T]) -> T:
            return await self._inspect(_only_if_there(check, session, at), at)

        await inspect(partial(inspect_description, session=session))
        lineage = await inspect(partial(inspect_lineage, session=session))
        yield
        for branch in lineage.lines:
            stretch = await self._readers.run(partial(lineage.stretch, branch=branch))
            while not stretch.walked:
                stretch = await inspect(partial(inspect_entries, stretch=stretch))
                yield
        await inspect(partial(inspect_head, session=session))
        await inspect(partial(inspect_keys, session=session))
        yield

    async def _inspect(self, check: Callable[[Inspection], T], at: Address | None = None) -> T:
        """Run a check in a snapshot; where it finds something that is to be mended, in a transaction."""

        def run(db: apsw.Connection, *, mend: bool) -> tuple[T, list[Finding]]:
            case = Inspection(db, mend=mend, at=at)
            return check(case), case.findings

        result, found = await self._readers.run(partial(run, mend=False))
        if found and self._repair:
            result, found = await self._writer.run(partial(run, mend=True))
        self._found += found
        return result

    def _told(self) -> Iterator[Finding]:
        """Give what was found since, and remember whether messages are left that cannot be read."""
        found, self._found = self._found, []
        self._entries_are_sound &= not any(finding.seq and not finding.done for finding in found)
        return iter(found)

    async def _index_agrees(self) -> bool:
        """Compare in many moments; only where that differs, since something was removed, in one."""
        try:
            kept, last = await self._readers.run(index.indexed)
            after: int | None = 0
            while after is not None:
                summed, after = await self._readers.run(partial(index.spoken, after=after, last=last))
                kept -= summed
            return kept == 0 or await self._readers.run(index.agrees)
        except StoreDamaged:
            return False

    async def _index_is_wrong(self) -> Finding:
        fault = "the index for search does not hold the words of the messages"
        if self._repair:
            await self.rebuild_index()
        return Finding(fault=fault, done="it is built again" if self._repair else "")


def session_keys(db: apsw.Connection, after: int) -> list[int]:
    """Give the numbers of the next sessions."""
    return [key for (key,) in db.execute(query("session_keys"), {"after": after, "limit": DOZEN})]


def _glance(db: apsw.Connection, after: int) -> tuple[list[int], int | None]:
    """Look at some sessions; give those that need a closer look, and where the next ones begin."""
    keys = session_keys(db, after)
    odd = [key for key in keys if not _is_short_and_sound(Inspection(db, mend=False), key)]
    return odd, keys[-1] if len(keys) == DOZEN else None


def _is_short_and_sound(case: Inspection, session: int) -> bool:
    inspect_description(case, session)
    lineage = inspect_lineage(case, session)
    for branch in lineage.lines:
        stretch = lineage.stretch(case.db, branch)
        if stretch.tip - stretch.seq >= PAGE:
            return False
        inspect_entries(case, stretch)
    inspect_head(case, session)
    inspect_keys(case, session)
    return not case.findings


def _only_if_there(check: Callable[[Inspection], T], session: int, at: Address) -> Callable[[Inspection], T]:
    def run(case: Inspection) -> T:
        if address_of(case.db, session) != at:
            raise NotFound(f"session {at.session} was removed")
        return check(case)

    return run
