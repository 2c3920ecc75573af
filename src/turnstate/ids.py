"""Ids and times: the core mints ids and reads the clock; pure code derives ids.

Minted ids are UUIDv7, so they sort by creation time, and ids that one process mints in the same
millisecond keep their order. Derived ids are UUIDv8 over (position, content): the same input
always gives the same id, and they sort by position. A tool-call id is ``call_`` and 32 hex digits,
which every provider accepts.

Messages have timestamps as text; clocks and stores use milliseconds since 1970. A session ends by itself
after an idle time. A wall clock that jumps ahead would end all sessions together, so a manager compares the
wall clock with a monotonic one before it ends any.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NewType
from uuid import UUID

MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)

UNKNOWN_TIME = "1970-01-01T00:00:00Z"
"""The timestamp of a message whose document has none; pure code reads no clock."""

_DERIVED = re.compile(
    r"(?:call_[0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"
)
_COUNTER_BITS = 42  # of the 74 random bits of a UUIDv7: never wraps within a millisecond


class _Ticks:
    """Milliseconds that never go back, each with a counter that only increases."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._counter = 0

    def next(self) -> tuple[int, int, int]:
        """Return the millisecond, the counter in it, and 32 random bits."""
        drawn = int.from_bytes(os.urandom(10))
        with self._lock:
            millisecond = time.time_ns() // 1_000_000
            if millisecond > self._millisecond:
                self._millisecond, self._counter = millisecond, drawn >> 80 - _COUNTER_BITS + 1
            else:
                self._counter += 1 + (drawn >> 72)
            return self._millisecond, self._counter, drawn & 0xFFFFFFFF

    def unlock(self) -> None:
        """Replace the lock in a forked child, where a lock held by another thread would never be released."""
        self._lock = threading.Lock()


_ticks = _Ticks()
os.register_at_fork(after_in_child=_ticks.unlock)


def _uuid7() -> str:
    """Return the hexadecimal digits of a new UUIDv7."""
    millisecond, counter, random = _ticks.next()
    high, low = counter >> 30, counter & ((1 << 30) - 1)
    tail = 0b10 << 62 | low << 32 | random
    return f"{millisecond << 16 | 0x7 << 12 | high:016x}{tail:016x}"


def _hashed(version: int, position: int, *content: bytes) -> str:
    """Return the 32 hex digits of a UUID over a position and content."""
    digest = hashlib.blake2b(digest_size=10)
    for piece in content:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    value = (position & ((1 << 48) - 1)) << 80 | int.from_bytes(digest.digest(), "big")
    value = value & ~(0xF << 76) | version << 76
    return f"{value & ~(0b11 << 62) | 0b10 << 62:032x}"


def _dashed(digits: str) -> MessageId:
    return MessageId(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")


def message_id() -> MessageId:
    """Mint the id of a new message."""
    digits = _uuid7()
    return MessageId(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")


def call_id() -> CallId:
    """Mint the id of a new tool call."""
    return CallId(f"call_{_uuid7()}")


def derived_id(position: int, *content: bytes) -> MessageId:
    """Derive the id of a message from its position and content in a document."""
    return _dashed(_hashed(8, position, *content))


def derived_call_id(position: int, *content: bytes) -> CallId:
    """Derive the id of a call from its position and content in a document."""
    return CallId(f"call_{_hashed(8, position, *content)}")


def named_call(name: str) -> CallId:
    """Return what stands for the id of a call outside a document that knows only the name of its tool."""
    return CallId(f"name:{name}")


def seeded_id(position: int, *content: bytes) -> MessageId:
    """Return a reproducible id that looks minted, for samples and demonstrations."""
    return _dashed(_hashed(7, position, *content))


def seeded_call_id(position: int, *content: bytes) -> CallId:
    """Return a reproducible call id that looks minted."""
    return CallId(f"call_{_hashed(7, position, *content)}")


def derived(*parts: str) -> MessageId:
    """Derive an id of 32 hex digits from texts, for messages that a window adds to a conversation."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() + b"\0")
    return MessageId(digest.hexdigest())


def minted_at(id: str) -> int | None:
    """Return the time in milliseconds at which `message_id` minted an id; None for any other id."""
    try:
        uuid = UUID(id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == 7 and str(uuid) == id else None


def is_derived(id: str) -> bool:
    """Return True if the id of a message or a call was derived from a document, not minted."""
    return "8" in id[14:18:3] and bool(_DERIVED.fullmatch(id))  # the UUID version is at 14 or 17


def now() -> str:
    """Return the current time as ISO-8601 in UTC, with milliseconds and a final ``Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Clocks in milliseconds, and whether the wall clock can be trusted.


Clock = Callable[[], int]

JUMP = 60_000
"""Milliseconds that the wall clock may get ahead, and for which the clocks must agree after a jump."""

AGREEMENT = 1_000
"""Milliseconds that two clocks may drift apart in that time and still count as agreeing."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def utc(moment: int) -> datetime:
    """Convert milliseconds since 1970 to a time in UTC, clamped to the years 1970 to 9999."""
    since = min(max(moment, 0), _LAST)
    return _EPOCH + timedelta(milliseconds=since)


def milliseconds(moment: datetime) -> int:
    """Convert a time, which must have a time zone, to milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def monotonic_clock() -> int:
    """Return the milliseconds of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """Compares the wall clock with a monotonic clock on each call of `trusts`."""

    def __init__(self, clock: Clock, monotonic: Clock) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._seen = clock(), monotonic()
        self._jumped = False
        self._last_jump: int | None = None  # by the monotonic clock

    def trusts(self) -> bool:
        """Return True if the wall clock can be trusted; after a jump, both must agree for a minute first."""
        wall, steady = self._clock(), self._monotonic()
        passed = steady - self._seen[1]
        ahead = wall - self._seen[0] - passed
        if ahead > JUMP or (self._jumped and abs(ahead) > AGREEMENT):
            self._jumped = True
            self._last_jump = steady
        elif not self._jumped or passed >= JUMP:
            self._jumped = False
        else:
            return False  # they agree, but not yet for long enough
        self._seen = wall, steady
        return not self._jumped

    def trusts_age(self, most: int) -> bool:
        """Return True if the wall clock did not jump for so many milliseconds.

        Whatever looks older than that is older. Right after a jump, all that was written before looks old.
        """
        self.trusts()
        return self._last_jump is None or self._seen[1] - self._last_jump >= most
