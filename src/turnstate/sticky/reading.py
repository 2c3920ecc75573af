"""Reading: the text of a file, never at the price of a hang, and read again only when it may have changed.

Only regular files are opened, so no pipe, device or socket is ever touched, and no more than
`MOST_BYTES` of one is read. What was read is known again by the file's identity, size and times, and
believed only if the last change lies well before the reading: a change in the same tick of the file
system's clock leaves no trace in the times. Such a file is read again, and its hash decides.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection

from msgspec import Struct

from .values import Reason

__all__ = ["MOST_BYTES", "Reading", "Refused", "Shelf", "checked_status"]

MOST_BYTES = 4 * 1024 * 1024
"""Of one file; about a million tokens, more than three quarters of nearly any model's window."""

TICK = 2_000_000_000
"""Nanoseconds: the coarsest clock that a file system in use has (FAT)."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1024 * 1024
_BINARY = "it is no UTF-8 text"


class Refused(Exception):
    """A file is not sent, and why."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


class Reading(Struct, frozen=True):
    """What a file held when it was read; no text if it is binary."""

    trace: tuple[int, ...]
    at: int
    sha256: str
    text: str | None

    def holds(self, status: os.stat_result) -> bool:
        """Tell whether a file with this status must still hold the same."""
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        return self.trace == _trace(status) and changed < self.at - TICK


class Shelf:
    """What was read last of each file."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def text(self, place: str, status: os.stat_result, clock: Callable[[], int]) -> tuple[str, str]:
        """Give the text of a file and the hash of its bytes, or raise `Refused`; `place` follows no link."""
        known = self._readings.get(place)
        if known is None or not known.holds(status):
            known = self._readings[place] = _read(place, clock())
        if known.text is None:
            raise Refused("binary", _BINARY)
        return known.text, known.sha256

    def keep(self, places: Collection[str]) -> None:
        """Forget all other files."""
        self._readings = {place: one for place, one in self._readings.items() if place in places}


def checked_status(status: os.stat_result) -> os.stat_result:
    """Refuse what is no regular file, or too large to be read."""
    if not stat.S_ISREG(status.st_mode):
        raise Refused("special", "it is not a regular file")
    if status.st_size > MOST_BYTES:
        raise Refused("huge", f"it has {status.st_size:,} bytes; at most {MOST_BYTES:,} are read")
    return status


def _read(place: str, now: int) -> Reading:
    file = os.open(place, _FLAGS)
    try:
        # The trace from before the reading: what changes meanwhile is seen as changed next time.
        trace = _trace(checked_status(os.fstat(file)))
        data = _bytes(file)
    finally:
        os.close(file)
    return Reading(trace, now, hashlib.sha256(data).hexdigest(), _decoded(data))


def _bytes(file: int) -> bytes:
    data = bytearray()
    while piece := os.read(file, _CHUNK):
        data += piece
        if len(data) > MOST_BYTES:
            raise Refused("huge", f"it grew beyond {MOST_BYTES:,} bytes")
    return bytes(data)


def _decoded(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _trace(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
