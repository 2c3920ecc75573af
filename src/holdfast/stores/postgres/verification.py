"""Verification: everything is looked at, session by session, and mended if asked to.

A session is looked at in a snapshot, so others go on reading and writing. Where something is found and
is to be mended, it is locked and looked at again, and all of it is mended in that one transaction.
What PostgreSQL itself cannot read, because a page is damaged, is told as it says it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from ...errors import StoreDamaged
from ..values import Address, Finding
from .checks.entries import inspect_entries
from .checks.inspection import Inspection
from .checks.leftovers import inspect_keys, inspect_orphans, inspect_parcels
from .checks.lineage import inspect_head, inspect_lineage
from .connections import LONG, Connections
from .lexemes import marks, quoted

__all__ = ["findings"]

DOZEN = 12


async def findings(connections: Connections, *, repair: bool) -> AsyncIterator[Finding]:
    """Check everything in a store."""
    after = 0
    while keys := [key for (key,) in await connections.read("session_keys", after=after, limit=DOZEN)]:
        for key in keys:
            for finding in await _session(connections, key, repair=repair):
                yield finding
        after = keys[-1]
    for check in (inspect_orphans, inspect_parcels):
        for finding in await _inspected(connections, check, repair=repair):
            yield finding


async def _session(connections: Connections, key: int, *, repair: bool) -> list[Finding]:
    async def check(case: Inspection) -> None:
        await _inspect_session(case, key)

    return await _inspected(connections, check, repair=repair, session=key)


async def _inspected(
    connections: Connections,
    check: Callable[[Inspection], Awaitable[None]],
    *,
    repair: bool,
    session: int = 0,
) -> list[Finding]:
    try:
        async with connections.transaction(frozen=True, patience=LONG) as work:
            case = Inspection(work, mends=False)
            await check(case)
        if case.findings and repair:
            async with connections.transaction(patience=LONG) as work:
                case = Inspection(work, mends=True)
                await work.rows("lock_session", key=session)
                await check(case)
    except StoreDamaged as error:
        where = f"session number {session}" if session else "what hangs on no session"
        return [Finding(fault=f"{where} cannot be read: {error}")]
    return case.findings


async def _inspect_session(case: Inspection, key: int) -> None:
    """Look at a session, unless it was removed meanwhile."""
    for tenant, id, user, meta, kept_marks in await case.work.rows("described", key=key):
        case.at, own = Address(tenant, id), marks(tenant, user)
        await _inspect_description(case, key, meta, kept_marks, own)
        lineage = await inspect_lineage(case, key)
        for branch in lineage.lines:
            stretch = await lineage.stretch(branch, tuple(own))
            while not stretch.walked:
                stretch = await inspect_entries(case, stretch)
        await inspect_head(case, key)
        await inspect_keys(case, key)


async def _inspect_description(
    case: Inspection, key: int, meta: bytes, kept_marks: str, own: list[str]
) -> None:
    fault = "its meta is no JSON object"
    if not _is_object(meta) and case.found(fault, done="emptied"):
        case.mend("set_aside", key=key, kind="meta", body=meta, fault=fault)
        case.mend("set_meta", key=key, meta=b"{}")
    if kept_marks != quoted(own) and case.found("its marks for search are wrong", done="set again"):
        case.mend("set_marks", key=key, marks=quoted(own))
    await case.mended()


def _is_object(meta: bytes) -> bool:
    try:
        msgspec.json.decode(meta, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
