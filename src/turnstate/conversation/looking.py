"""A look at a file, as the line tracker takes it: what its bytes are, and how many lines, whatever is there.

A pipe or a device is not opened for reading, and a huge file is known by its size alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import NamedTuple

from .tracker import line_count

__all__ = ["ABSENT", "LARGEST", "Look", "look"]

LARGEST = 64 * 1024 * 1024
"""Bytes; a larger file is not looked into."""

ABSENT, OTHER, UNREADABLE = "absent", "other", "unreadable"

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Look(NamedTuple):
    """What stands at a path: a digest of it, or a word for what has none."""

    digest: str
    lines: int = 0


def look(path: bytes) -> Look:
    """Look at a file; nothing waits, and nothing is raised."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Look(OTHER)
        descriptor = os.open(path, _READING)
        try:
            return _looked_into(descriptor)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return Look(ABSENT)
    except (OSError, ValueError):
        return Look(UNREADABLE)


def _looked_into(descriptor: int) -> Look:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return Look(OTHER)
    if status.st_size > LARGEST:
        return Look(f"large:{status.st_size}")
    pieces, size = list[bytes](), 0
    while size <= status.st_size and (piece := os.read(descriptor, status.st_size + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    data = b"".join(pieces)
    return Look(hashlib.sha256(data).hexdigest(), line_count(data))
