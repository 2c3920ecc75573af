"""Checkpoints: files, kept beside a conversation and brought back with it.

`ShadowRepository` keeps snapshots of a work tree and restores them; it knows nothing of conversations.
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
from .manager import CheckpointManager
from .transaction import Recovered, RestoreResult, verify

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
