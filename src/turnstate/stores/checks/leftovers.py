"""What refers to something that is not there: keys to places, rows to sessions, parcels to sessions.

Rows of a session that is gone would come to belong to a later one of the same number. So all of it is
set aside.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..values import Address
from .inspection import Check, Inspection, asked, text

__all__ = ["inspect_keys", "inspect_orphans", "inspect_parcels"]

MOST = 1_000
"""What is set aside in one transaction; what is left is found by the next check."""


def inspect_keys(case: Inspection, session: int) -> Check[None]:
    """Check that the receipts under a session's keys name places that are there."""
    for name, branch, last in (yield from asked("stray_keys", key=session, limit=MOST)):
        answered = f"was answered with entry {last} of branch {branch}, which is not there"
        fault = f"the key {text(name)!r:.80} {answered}"
        if case.found(fault, done="it is set aside; a retry under it is a new request", branch=branch):
            case.mend("set_key_aside", key=session, name=name, fault=fault)
    yield from case.mended()


def inspect_orphans(case: Inspection, tables: Sequence[str]) -> Check[None]:
    """Check that everything that hangs on a session hangs on one that is there."""
    for table in tables:
        for session, count in (yield from asked(f"orphans_{table}", limit=MOST)):
            fault = f"in `{table}` hang {count:,} on session number {session}, which is not there"
            if case.found(fault, done="set aside"):
                case.mend(f"set_{table}_orphans_aside", key=session, fault=fault)
    yield from case.mended()


def inspect_parcels(case: Inspection) -> Check[None]:
    """Check that parcels come from sessions that are there."""
    for id, tenant, session in (yield from asked("stray_parcels", limit=MOST)):
        case.at = Address(text(tenant), text(session))
        fault = "a parcel waits for a session that is not there"
        if case.found(fault, done="it is set aside", id=text(id)):
            case.mend("set_parcel_aside", id=id, fault=fault)
    yield from case.mended()
