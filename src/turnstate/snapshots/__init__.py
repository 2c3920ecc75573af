"""Snapshots: the live queue of a session as a file, so that an agent that restarts remembers.

`Snapshots` writes, restores, lists and erases; `SnapshotPace` says when to write.
"""

from __future__ import annotations

from ..errors import DamagedSnapshot, ForeignSnapshot, SnapshotFailed, UnusableSnapshot
from .snapshots import FOLDER, KEPT, Found, Restored, SnapshotPace, Snapshots

__all__ = [
    "FOLDER",
    "KEPT",
    "DamagedSnapshot",
    "ForeignSnapshot",
    "Found",
    "Restored",
    "SnapshotFailed",
    "SnapshotPace",
    "Snapshots",
    "UnusableSnapshot",
]
