"""Erasing the checkpoints of a conversation: every copy of a file that they hold goes, or it is told.

Nothing in them is read, so it works whatever their condition is.
"""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from ..errors import CheckpointError, CheckpointsDamaged
from ..home import Home
from .keeping import locked, remove
from .places import folder_for

__all__ = ["discard", "erase"]


def erase(home: Home, tenant: str, conversation: str) -> bool:
    """Remove a shadow repository, and what an earlier removal left of it; tell whether there was one."""
    return discard(home, tenant, conversation) is not None


def discard(home: Home, tenant: str, conversation: str) -> int | None:
    """Remove a shadow repository as `erase` does; return its bytes, or None if there was none."""
    folder = folder_for(home, tenant, conversation)
    size = None
    try:
        if os.path.lexists(folder):
            size = _removed(folder)
        for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
            size = size or 0
            shutil.rmtree(left)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of {conversation:.80} in {folder} could not be erased: {error}; "
            "remove that folder by hand"
        ) from error
    return size


def _removed(folder: Path) -> int:
    with ExitStack() as stack:
        with suppress(CheckpointsDamaged):  # nobody can be at work on what cannot be locked
            stack.enter_context(locked(folder))
        return remove(folder)
