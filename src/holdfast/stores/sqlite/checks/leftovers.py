"""What only a file can have: a log of writes that was damaged, and parcels with texts that are none."""

from __future__ import annotations

from ...checks.inspection import Check, Inspection, asked, is_text, text
from ...values import Address

__all__ = ["inspect_logs", "inspect_parcel_texts"]


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
