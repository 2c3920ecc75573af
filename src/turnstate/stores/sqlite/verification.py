"""Verification: the file first, then everything in it, mended if asked to.

Where the file itself is damaged nothing is written to it: what cannot be read is counted, or what can
be read is salvaged into another file, and that one is checked and mended. Checks are short looks of
readers of their own, so other processes go on reading and writing meanwhile; only SQLite's own check
of all pages is one long look, during which the log of writes grows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

import apsw
from msgspec import structs

from ...errors import StoreDamaged, StoreError
from ..values import Address, Finding, Recount, Span
from .careful import rows_around
from .checks.description import address_of
from .checks.structure import inspect_structure
from .checks.walk import Walk, session_keys
from .faults import UNREADABLE, telling
from .queries import query
from .read_only import readers_of
from .readers import Readers
from .rows import Place
from .salvage import Salvaged, publish, salvage, salvage_path
from .writer import Writer

__all__ = ["findings", "rescue"]

_END = 2**62


async def findings(
    path: str, writer: Writer, *, repair: bool, recount: Recount | None = None
) -> AsyncGenerator[Finding, None]:
    """Check a store's file and everything in it."""
    readers = readers_of(path)
    try:
        structure = await readers.run(inspect_structure)
        for fault in structure.faults:
            yield Finding(fault=f"the file is damaged: {fault}")
        if structure.sound:
            walk = Walk(readers, writer, repair=repair, recount=recount)
            found = walk.findings(index_is_broken=structure.index_is_broken)
        else:
            found = rescue(path) if repair else _unreadable(readers)
        async for finding in found:
            yield finding
    finally:
        readers.abandon()


async def _unreadable(readers: Readers) -> AsyncIterator[Finding]:
    """Count what cannot be read of each session."""
    after: int | None = 0
    while after is not None:
        try:
            keys = await readers.run(partial(session_keys, after=after))
        except StoreError as error:
            yield Finding(fault=f"the sessions behind number {after} cannot be read: {error}")
            return
        for key in keys:
            for finding in await readers.run(partial(_unreadable_in, session=key)):
                yield finding
        after = keys[-1] if keys else None


def _unreadable_in(db: apsw.Connection, session: int) -> list[Finding]:
    found, at = list[Finding](), address_of(db, session) or Address("", "")
    try:
        branches = [id for id, *_ in db.execute(query("branch_rows"), {"key": session})]
    except UNREADABLE as error:
        return [Finding(tenant=at.tenant, session=at.session, fault=f"its branches cannot be read: {error}")]
    ((head, last, *_),) = db.execute(query("head"), {"key": session})
    for branch in branches:
        try:
            rows = rows_around(db, Place(session, head, last), Span(branch, 1, _END))
        except StoreDamaged as error:
            found.append(Finding(tenant=at.tenant, session=at.session, branch=branch, fault=str(error)))
            continue
        lost = [row.seq for row in rows if row.damaged]
        if lost:
            fault, seq = f"{len(lost)} entries cannot be read, the first is {min(lost)}", min(lost)
            found.append(Finding(tenant=at.tenant, session=at.session, branch=branch, seq=seq, fault=fault))
    return found


async def rescue(path: str) -> AsyncIterator[Finding]:
    """Copy what can be read into another file, also of one that cannot be opened; check and mend the copy."""
    fault, target = "what is damaged cannot be mended in place", salvage_path(path)
    if os.path.exists(target):
        done = f"nothing: {target} is there already; look at it, or move it away"
        yield Finding(fault=fault, done=done)
        return
    with telling(path):
        copy = await asyncio.to_thread(salvage, path)
    found = [finding async for finding in _mended(copy)]
    await asyncio.to_thread(publish, path, copy.part)
    amount = f"{copy.entries:,} entries of {copy.sessions:,} sessions"
    advice = "stop what uses it, and put the copy in its place"
    yield Finding(fault=fault, done=f"{amount} were copied to {target}; {path} is as it was: {advice}")
    for finding in found:
        yield structs.replace(finding, done=f"in {target}: {finding.done}" if finding.done else "")


async def _mended(copy: Salvaged) -> AsyncIterator[Finding]:
    readers, writer = Readers(copy.part), Writer(copy.part)
    try:
        walk = Walk(readers, writer, repair=True)
        await walk.rebuild_index()
        async for finding in walk.findings():
            yield finding
    finally:
        await asyncio.to_thread(readers.close)
        await asyncio.to_thread(writer.close)
