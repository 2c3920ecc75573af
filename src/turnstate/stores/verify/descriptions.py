"""Rules for everything around the log: the counter and meta of a session, and dangling references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...tokens import counter_names
from ..values import Address
from .inspection import Check, Inspection, asked, is_text, text

DEFAULT_COUNTER = "o200k_base"
"""The counter that replaces a damaged one; also the default for new sessions."""

MAX_SET_ASIDE = 1_000
"""Maximum number of rows that one transaction sets aside; the next check finds the others."""


def inspect_counter(case: Inspection, session: int, name: str | bytes) -> None:
    """Check that the counter of a session exists.

    Token counts are not changed here: a recount under the default counter corrects them.
    """
    if is_text(name) and text(name) in counter_names():
        return
    fault = f"its counter {text(name)!r:.60} does not exist"
    done = f"set to {DEFAULT_COUNTER}; `turnstate verify --deep --repair` counts its tokens again"
    if case.found(fault, done=done):
        raw = name.encode() if isinstance(name, str) else name
        case.mend("set_aside", key=session, kind="counter", body=raw, fault=fault)
        case.mend("set_counter", key=session, counter=DEFAULT_COUNTER)


def inspect_meta(case: Inspection, session: int, meta: bytes) -> None:
    """Check that the meta of a session is a JSON object."""
    fault = "its meta is not a JSON object"
    if parsed(meta, dict[str, Any]) is None and case.found(fault, done="emptied"):
        case.mend("set_aside", key=session, kind="meta", body=meta, fault=fault)
        case.mend("set_meta", key=session, meta=b"{}")


def parsed(data: bytes, kind: Any) -> Any:
    """Decode JSON as a type; return None if it does not match."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def inspect_keys(case: Inspection, session: int) -> Check[None]:
    """Check that the receipts under a session's keys name entries that exist."""
    for name, branch, last in (yield from asked("stray_keys", key=session, limit=MAX_SET_ASIDE)):
        answered = f"was answered with entry {last} of branch {branch}, which does not exist"
        fault = f"the key {text(name)!r:.80} {answered}"
        if case.found(fault, done="it is set aside; a retry under it is a new request", branch=branch):
            case.mend("set_key_aside", key=session, name=name, fault=fault)
    yield from case.mended()


def inspect_orphans(case: Inspection, tables: Sequence[str]) -> Check[None]:
    """Check that every row of some tables belongs to a session that exists."""
    for table in tables:
        for session, count in (yield from asked(f"orphans_{table}", limit=MAX_SET_ASIDE)):
            fault = f"{count:,} rows of `{table}` belong to session number {session}, which does not exist"
            if case.found(fault, done="set aside"):
                case.mend(f"set_{table}_orphans_aside", key=session, fault=fault)
    yield from case.mended()


def inspect_parcels(case: Inspection) -> Check[None]:
    """Check that parcels come from sessions that exist."""
    for id, tenant, session in (yield from asked("stray_parcels", limit=MAX_SET_ASIDE)):
        case.at = Address(text(tenant), text(session))
        fault = "a parcel waits for a session that does not exist"
        if case.found(fault, done="it is set aside", id=text(id)):
            case.mend("set_parcel_aside", id=id, fault=fault)
    yield from case.mended()
