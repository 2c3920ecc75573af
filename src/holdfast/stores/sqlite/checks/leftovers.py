"""What refers to something that is not there: keys to places, rows to sessions, parcels to sessions.

Such rows would come to belong to a later session of the same number, so they are set aside, too.
"""

from __future__ import annotations

from ...port import Address
from ..queries import query
from .inspection import Inspection

__all__ = ["inspect_keys", "inspect_orphans", "inspect_parcels"]

MOST = 1_000
"""Rows that are set aside in one transaction; what is left is found by the next."""

_TABLES = ("entry", "branch", "key", "tag")


def inspect_keys(case: Inspection, session: int) -> None:
    """Check that the receipts under a session's keys name places that are there."""
    strays = list(case.db.execute(query("stray_keys"), {"key": session, "limit": MOST}))
    for name, branch, last in strays:
        text = name.decode(errors="replace")
        fault = f"the key {text!r:.80} was answered with entry {last} of branch {branch}, which is not there"
        if case.found(fault, done="it is set aside; a retry under it is a new request", branch=branch):
            which = {"key": session, "name": name, "fault": fault}
            case.db.execute(query("set_key_aside"), which)
            case.db.execute(query("drop_key"), which)


def inspect_orphans(case: Inspection) -> None:
    """Check that everything that hangs on a session hangs on one that is there."""
    for table in _TABLES:
        for session, count in list(case.db.execute(query(f"orphans_{table}"), {"limit": MOST})):
            fault = f"in `{table}` hang {count:,} on session number {session}, which is not there"
            if case.found(fault, done="set aside"):
                which = {"key": session, "fault": fault}
                case.db.execute(query(f"set_{table}_orphans_aside"), which)
                if table == "entry":
                    case.db.execute(query("drop_words"), which)
                case.db.execute(query(f"drop_{table}_orphans"), which)


def inspect_parcels(case: Inspection) -> None:
    """Check that parcels come from sessions that are there."""
    for id, tenant, session in list(case.db.execute(query("stray_parcels"), {"limit": MOST})):
        case.at = Address(tenant.decode(errors="replace"), session.decode(errors="replace"))
        fault = "a parcel waits for a session that is not there"
        if case.found(fault, done="it is set aside", id=id.decode(errors="replace")):
            case.db.execute(query("set_parcel_aside"), {"id": id, "fault": fault})
            case.db.execute(query("drop_stray_parcel"), {"id": id})
