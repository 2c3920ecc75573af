"""Waits for the end of a process that is not a child."""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE = 60.0


def has_ended(pid: int) -> bool:
    """Wait until a process has ended; a zombie has ended."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if "zombie" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
