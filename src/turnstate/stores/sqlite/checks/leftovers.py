"""What only a file can have: a log of writes that was damaged, parcels with texts that are none, promises.

A session's rows promise how many entries there are beside those up to its head, so that reading can tell
when an index leads to fewer of them.
"""

from __future__ import annotations

from ...checks.inspection import Check, Inspection, asked, is_text, text
from ...values import Address

__all__ = ["inspect_logs", "inspect_parcel_texts", "inspect_promises"]


def inspect_parcel_texts(case: Inspection) -> Check[None]:
    """Check that parcels can be read."""
    for texts in (yield from asked("parcel_texts")):
        if all(map(is_text, texts)):
            continue
        id, tenant, session, *_ = texts
        case.at, fault = Address(text(tenant), text(session)), "a parcel has a text that is none"
        if case.found(fault, done="it is set aside", id=text(id)):
            case.mend("set_parcel_aside", id=id, fault=fault)
    yield from case.mended()


def inspect_logs(case: Inspection) -> Check[None]:
    """Tell of logs of writes that were damaged when the store was opened."""
    for key, fault in (yield from asked("lost_commits")):
        if case.found(fault, done="nothing can be; it is not told again"):
            case.mend("told_of_lost_commits", key=key)
    yield from case.mended()


def inspect_promises(case: Inspection, session: int) -> Check[None]:
    """Check that the rows of a session and of its branches promise the entries that there are."""
    rows = yield from asked("branch_rows", key=session)
    known = {id for id, *_ in rows}
    for id in sorted(set(range(1, max(known, default=0))) - known):
        if case.found(f"branch {id} is missing", done="made without entries", branch=id):
            case.mend("remake_branch", key=session, id=id, parent=None, fork_seq=0, former=1)
    for branch, told, found in (yield from asked("promises", key=session)):
        if told == found:
            continue
        fault = f"branch {branch} says that it ends at entry {told}, and its last one is {found}"
        if not branch:
            fault = "it has other entries beside its messages than its row says"
        case.found(fault, done="the row now says what is there", branch=branch)
    yield from case.mended()
