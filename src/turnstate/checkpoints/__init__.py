"""Checkpoints: files, kept beside a conversation and brought back with it.

`ShadowRepository` keeps snapshots of a work tree and restores them; it knows nothing of conversations.
"""

from __future__ import annotations

from ..shadow.purge import Purged
from ..shadow.repository import ShadowRepository
from ..shadow.values import Changes, Diff, FileDiff, Kept, LeftOut, Limits, Restored, Snapshot, shown
from .transaction import verify

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
