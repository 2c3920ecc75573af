"""The POSIX locks of this process, as the system lists them; locks of descriptors do not count."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

SHARED = (0x40000002, 0x400001FF)
"""The first and last byte that SQLite locks in a database as long as it has it open in WAL mode."""

RESERVED = (0x40000001, 0x40000001)
"""The byte that SQLite locks in a database while it writes to it."""

IN_USE = (128, 128)
"""The byte that SQLite locks in the shared memory as long as it has it open."""


def is_locked(path: Path, lock: tuple[int, int]) -> bool:
    """Return True if this process, which has a file open, has a lock that includes these bytes of it."""
    if not os.path.exists("/proc/self/fdinfo"):
        pytest.skip("this system does not list locks")
    wanted = path.stat()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            if os.path.samestat(os.fstat(int(number)), wanted):
                lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
                if any(_includes(line, lock) for line in lines):
                    return True
    return False


def _includes(line: str, lock: tuple[int, int]) -> bool:
    match line.split():  # lock: 1: POSIX ADVISORY READ 1234 08:01:5678 1073741826 1073742335
        case ["lock:", _, "POSIX", _, _, _, _, first, last]:
            return int(first) <= lock[0] and (last == "EOF" or lock[1] <= int(last))
    return False
