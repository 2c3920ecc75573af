"""Checkpoints: a conversation and the files of its work tree, restored together.

`CheckpointManager` is the entry point. `ShadowRepository` keeps and restores snapshots of the files
alone; it knows nothing of conversations.
"""

from __future__ import annotations

from ..shadow.purge import Purged
from ..shadow.repository import ShadowRepository
from ..shadow.values import (
    Changes,
    Diff,
    FileDiff,
    KeptPath,
    LeftOut,
    RestoredFiles,
    Snapshot,
    SnapshotLimits,
    shown,
)
from .manager import CheckpointManager, verify
from .transaction import Recovered, RestoreResult

__all__ = [
    "Changes",
    "CheckpointManager",
    "Diff",
    "FileDiff",
    "KeptPath",
    "LeftOut",
    "Purged",
    "Recovered",
    "RestoreResult",
    "RestoredFiles",
    "ShadowRepository",
    "Snapshot",
    "SnapshotLimits",
    "shown",
    "verify",
]
