"""What refers to something that is not there: keys to places, rows to sessions, parcels to sessions."""

from __future__ import annotations

from ...values import Address
from .inspection import Inspection

__all__ = ["inspect_keys", "inspect_orphans", "inspect_parcels"]

MOST = 1_000
"""What is set aside in one transaction; what is left is found by the next check."""

_TABLES = ("entry", "branch", "key")


async def inspect_keys(case: Inspection, session: int) -> None:
    """Check that the receipts under a session's keys name places that are there."""
    for name, branch, last in await case.work.rows("stray_keys", key=session, limit=MOST):
        fault = f"the key {name!r:.80} was answered with entry {last} of branch {branch}, which is not there"
        if case.found(fault, done="it is set aside; a retry under it is a new request", branch=branch):
            case.mend("set_key_aside", key=session, name=name, fault=fault)
            case.mend("drop_key", key=session, name=name)
    await case.mended()


async def inspect_orphans(case: Inspection) -> None:
    """Check that everything that hangs on a session hangs on one that is there."""
    for table in _TABLES:
        for session, count in await case.work.rows(f"orphans_{table}", limit=MOST):
            fault = f"in `{table}` hang {count:,} on session number {session}, which is not there"
            if case.found(fault, done="set aside"):
                case.mend(f"set_{table}_orphans_aside", key=session, fault=fault)
    await case.mended()


async def inspect_parcels(case: Inspection) -> None:
    """Check that parcels come from sessions that are there."""
    for id, tenant, session in await case.work.rows("stray_parcels", limit=MOST):
        case.at = Address(tenant, session)
        fault = "a parcel waits for a session that is not there"
        if case.found(fault, done="it is set aside", id=id):
            case.mend("set_parcel_aside", id=id, fault=fault)
    await case.mended()
