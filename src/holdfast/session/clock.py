"""The clock of the sessions: milliseconds, and a name for whoever writes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

__all__ = ["Clock", "holder_name", "wall_clock"]

Clock = Callable[[], int]


def wall_clock() -> int:
    """Read the wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def holder_name() -> str:
    """Name this process, for people who ask who holds a lease."""
    return f"{socket.gethostname()}:{os.getpid()}"
