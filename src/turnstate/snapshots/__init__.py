"""Snapshots: the live queue of a session as a file, from which an agent continues after a restart.

`Snapshots` writes, restores, lists and erases them; `SnapshotPace` decides when to write.
"""

from __future__ import annotations

from ..errors import DamagedSnapshot, ForeignSnapshot, SnapshotFailed, UnusableSnapshot
from .snapshots import FOLDER, KEPT, RestoredSnapshot, SnapshotFile, SnapshotPace, Snapshots

__all__ = [
    "FOLDER",
    "KEPT",
    "DamagedSnapshot",
    "ForeignSnapshot",
    "RestoredSnapshot",
    "SnapshotFailed",
    "SnapshotFile",
    "SnapshotPace",
    "Snapshots",
    "UnusableSnapshot",
]
