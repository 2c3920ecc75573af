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
from ...checks.entries import PAGE, inspect_entries
from ...checks.inspection import Check, Inspection, asked, text
from ...checks.leftovers import inspect_keys, inspect_orphans, inspect_parcels
from ...checks.lineage import inspect_head, inspect_lineage
from ...values import Address, Finding, Recount
from ..queries import query
from ..readers import Readers
from ..rows import checksum
from ..writer import Writer
from . import index
from .description import address_of, inspect_description
from .leftovers import inspect_logs, inspect_parcel_texts, inspect_promises

__all__ = ["Walk", "session_keys"]

T = TypeVar("T")

DOZEN = 24
"""Sessions that are looked at in one moment."""

_TABLES = ("entry", "branch", "key", "tag")
_OF_NO_SESSION = (
    inspect_logs,
    partial(inspect_orphans, tables=_TABLES),
    inspect_parcels,
    inspect_parcel_texts,
)


class Walk:
    """One check of everything."""

    def __init__(
        self, readers: Readers, writer: Writer, *, repair: bool, recount: Recount | None = None
    ) -> None:
        self._readers, self._writer, self._repair, self._recount = readers, writer, repair, recount
        self._found = list[Finding]()
        self._count = 0
        self._entries_are_sound = True

    async def findings(self, *, index_is_broken: bool = False) -> AsyncIterator[Finding]:
        """Give what is wrong, as it is found."""
        after: int | None = 0
        while after is not None:
            odd, after = await self._readers.run(partial(_glance, after=after, recount=self._recount))
            for session in odd:
                async for finding in self._session(session):
                    yield finding
        for check in _OF_NO_SESSION:
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
        """Look at a session closely, bit by bit; what it promises follows from what was found before."""
        before = self._count

        async def inspect(check: Callable[[Inspection], Check[T]]) -> T:
            return await self._inspect(partial(_only_if_there, check=check, session=session, at=at), at)

        await inspect(partial(inspect_description, session=session))
        lineage = await inspect(partial(inspect_lineage, session=session))
        yield
        for branch in lineage.lines:
            stretch = await inspect(partial(lineage.stretch, branch=branch))
            while not stretch.walked:
                stretch = await inspect(partial(inspect_entries, stretch=stretch))
                yield
        await inspect(partial(inspect_head, session=session))
        await inspect(partial(inspect_keys, session=session))
        if self._count == before:
            await inspect(partial(inspect_promises, session=session))
        if self._count > before and self._repair:
            await self._writer.run(lambda db: db.execute(query("set_promises"), {"key": session}) and None)
        yield

    async def _inspect(self, check: Callable[[Inspection], Check[T]], at: Address | None = None) -> T:
        """Run a check in a snapshot; where it finds something that is to be mended, in a transaction."""

        def run(db: apsw.Connection, *, mends: bool) -> tuple[T, list[Finding]]:
            case = Inspection(checksum, mends=mends, at=at, recount=self._recount)
            return _answered(db, check(case)), case.findings

        result, found = await self._readers.run(partial(run, mends=False))
        if found and self._repair:
            result, found = await self._writer.run(partial(run, mends=True))
        self._found += found
        self._count += len(found)
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


def _answered(db: apsw.Connection, check: Check[T]) -> T:
    """Run a check: give it what it asks for, and let it write what it mends."""
    answer: object = None
    while True:
        try:
            name, given = check.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = db.execute(query(name), given)


def _glance(db: apsw.Connection, after: int, recount: Recount | None) -> tuple[list[int], int | None]:
    """Look at some sessions; give those that need a closer look, and where the next ones begin."""
    keys = session_keys(db, after)
    odd = [key for key in keys if not _answered(db, _is_short_and_sound(key, recount))]
    return odd, keys[-1] if len(keys) == DOZEN else None


def _is_short_and_sound(session: int, recount: Recount | None) -> Check[bool]:
    case = Inspection(checksum, mends=False, recount=recount)
    yield from inspect_description(case, session)
    lineage = yield from inspect_lineage(case, session)
    for branch in lineage.lines:
        stretch = yield from lineage.stretch(case, branch)
        if stretch.tip - stretch.seq >= PAGE:
            return False
        yield from inspect_entries(case, stretch)
    yield from inspect_head(case, session)
    yield from inspect_keys(case, session)
    yield from inspect_promises(case, session)
    return not case.findings


def _only_if_there(
    case: Inspection, check: Callable[[Inspection], Check[T]], session: int, at: Address
) -> Check[T]:
    """Run a check unless the session was removed meanwhile."""
    here = yield from asked("address", key=session)
    if [Address(text(tenant), text(id)) for tenant, id in here] != [at]:
        raise NotFound(f"session {at.session} was removed")
    return (yield from check(case))
