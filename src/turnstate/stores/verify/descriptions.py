"""The counter of a session whose name was damaged: the counts that are kept of its messages tell it.

Each message was counted once, in the session's counter, and short ones as they stand. The counter under
which most of them have the counts that are kept is the one that was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...codec import decode_entry
from ...errors import TurnstateError
from ...message import Message
from ...tokens import counter, counter_names, message_cost
from ..values import MESSAGE, Address
from .inspection import Check, Inspection, asked, is_text, text

__all__ = [
    "SHORT",
    "SOME",
    "Lost",
    "inspect_counter",
    "inspect_keys",
    "inspect_meta",
    "inspect_orphans",
    "inspect_parcels",
    "is_known",
    "lost_counter",
    "parsed",
]

DEFAULT = "o200k_base"
"""What sessions count with where nothing else is asked for."""

SOME, SHORT = 100, 4_000
"""Messages that are asked, and the bytes of one: a longer one may have been counted as it was reduced."""


class Lost(Struct, frozen=True):
    """A counter whose name is none: what is to be told of it, and which it was."""

    fault: str
    name: str
    done: str


def is_known(name: str) -> bool:
    """Tell whether Turnstate has a counter of that name."""
    return name in counter_names()


def lost_counter(name: str, said: Iterable[tuple[bytes, int]]) -> Lost:
    """Find out which counter it was, from bodies of messages and their counts; else it is the default."""
    counted = [(message, tokens) for body, tokens in said if (message := _message(body))]
    names = sorted(counter_names(), key=lambda one: one != DEFAULT)
    fits = {one: sum(_cost(message, one) == tokens for message, tokens in counted) for one in names}
    found = max(names, key=fits.__getitem__)
    why = "as the counts of its messages tell" if fits[found] else "and nothing tells which it was"
    return Lost(f"its counter {name!r:.60} is none that Turnstate knows", found, f"it is {found} now, {why}")


def _cost(message: Message, name: str) -> int:
    return message_cost(message, counter(name)).tokens


def _message(body: bytes) -> Message | None:
    try:
        entry = decode_entry(MESSAGE, body)
    except TurnstateError:
        return None
    return entry if isinstance(entry, Message) else None


# What a session says of itself, as far as stores keep it alike: its counter, and what was noted of it.


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


# What refers to something that is not there: keys to places, rows to sessions, parcels to sessions.


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
