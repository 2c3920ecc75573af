"""Snapshots: the live queue of a session as a file, from which an agent continues after a restart.

`Snapshots` writes, restores, lists and erases the files; `SnapshotPace` decides when to write. A file is
described by three modules: its content, its seal, and the folder with its names. The writer belongs to an
open session.

The value, `ContextSnapshot`, is in `turnstate.context`, since `StateManager.snapshot` returns it.
"""

from __future__ import annotations

from ..errors import DamagedSnapshot, ForeignSnapshot, SnapshotFailed, UnusableSnapshot
from .snapshots import FOLDER, KEPT, RestoredSnapshot, SnapshotFile, Snapshots
from .writer import SnapshotPace

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
