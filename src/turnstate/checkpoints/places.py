"""Where checkpoints are kept, outside of all work trees, and where they are expected, inside of a Git one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..home import Home

__all__ = ["folder_for", "is_in_repository"]


def folder_for(home: Home, tenant: str, conversation: str) -> Path:
    """Give the folder of a conversation's checkpoints; any id makes a harmless name."""
    digest = hashlib.sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).hexdigest()
    return home.path / "checkpoints" / digest[:40]


def is_in_repository(work_tree: Path) -> bool:
    """Tell whether a folder lies in somebody's Git repository."""
    real = Path(os.path.realpath(work_tree))
    return any(os.path.lexists(folder / ".git") for folder in (real, *real.parents))
