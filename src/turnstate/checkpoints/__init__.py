"""Checkpoints: files, kept beside a conversation and brought back with it.

`ShadowRepository` keeps snapshots of a work tree and restores them; it knows nothing of conversations.
"""

from __future__ import annotations

from .carrying import verify
from .purge import Purged
from .repository import ShadowRepository
from .values import Changes, Diff, FileDiff, Kept, LeftOut, Limits, Restored, Snapshot, shown

__all__ = [
    "Changes",
    "Diff",
    "FileDiff",
    "Kept",
    "LeftOut",
    "Limits",
    "Purged",
    "Restored",
    "ShadowRepository",
    "Snapshot",
    "shown",
    "verify",
]
