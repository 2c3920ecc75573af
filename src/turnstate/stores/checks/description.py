"""What a session says of itself, as far as stores keep it alike: its counter, and what was noted of it.

What cannot be used is set aside and replaced: it is less than the conversation under it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .counters import SHORT, SOME, is_known, lost_counter
from .inspection import Check, Inspection, asked, is_text, text

__all__ = ["inspect_counter", "inspect_meta", "parsed"]


def inspect_counter(case: Inspection, session: int, name: str | bytes) -> Check[None]:
    """Check that Turnstate knows the counter of a session."""
    if is_text(name) and is_known(text(name)):
        return
    said = yield from asked("short_messages", key=session, most=SHORT, limit=SOME)
    lost = lost_counter(text(name), said)
    if case.found(lost.fault, done=lost.done):
        raw = name.encode() if isinstance(name, str) else name
        case.mend("set_aside", key=session, kind="counter", body=raw, fault=lost.fault)
        case.mend("set_counter", key=session, counter=lost.name)


def inspect_meta(case: Inspection, session: int, meta: bytes) -> None:
    """Check that what was noted of a session can be read."""
    fault = "its meta is no JSON object"
    if parsed(meta, dict[str, Any]) is None and case.found(fault, done="emptied"):
        case.mend("set_aside", key=session, kind="meta", body=meta, fault=fault)
        case.mend("set_meta", key=session, meta=b"{}")


def parsed(data: bytes, kind: Any) -> Any:
    """Give JSON of a kind; nothing where it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
