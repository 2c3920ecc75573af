"""What refers to something that is not there: keys to places, rows to sessions, parcels to sessions.

Such rows would come to belong to a later session of the same number, so they are set aside, too.
"""

from __future__ import annotations

from ...values import Address
from ..queries import query
from .inspection import Inspection

__all__ = ["inspect_keys", "inspect_logs", "inspect_orphans", "inspect_parcels"]

_TABLES = ("entry", "branch", "key", "tag")


def inspect_keys(case: Inspection, session: int) -> None:
    """Check that the receipts under a session's keys name places that are there."""
    strays = list(case.db.execute(query("stray_keys"), {"key": session}))
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
        for session, count in list(case.db.execute(query(f"orphans_{table}"))):
            fault = f"in `{table}` hang {count:,} on session number {session}, which is not there"
            if case.found(fault, done="set aside"):
                which = {"key": session, "fault": fault}
                case.db.execute(query(f"set_{table}_orphans_aside"), which)
                if table == "entry":
                    case.db.execute(query("drop_words"), which)
                case.db.execute(query(f"drop_{table}_orphans"), which)


def inspect_parcels(case: Inspection) -> None:
    """Check that parcels come from sessions that are there, and can be read."""
    for id, tenant, session, kind, error, stray in list(case.db.execute(query("parcel_texts"))):
        texts = [text.decode(errors="replace") for text in (id, tenant, session, kind, error)]
        if stray:
            fault = "a parcel waits for a session that is not there"
        elif [text.encode() for text in texts] != [id, tenant, session, kind, error]:
            fault = "a parcel has a text that is none"
        else:
            continue
        case.at = Address(texts[1], texts[2])
        if case.found(fault, done="it is set aside", id=texts[0]):
            case.db.execute(query("set_parcel_aside"), {"id": id, "fault": fault})
            case.db.execute(query("drop_stray_parcel"), {"id": id})


def inspect_logs(case: Inspection) -> None:
    """Tell of logs of writes that were damaged when the store was opened."""
    for key, fault in list(case.db.execute(query("lost_commits"))):
        if case.found(fault, done="nothing can be; it is not told again"):
            case.db.execute(query("told_of_lost_commits"), {"key": key})
