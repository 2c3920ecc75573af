"""Erasing the checkpoints of a conversation: every copy of a file that they hold goes, or it is told."""

from __future__ import annotations

import glob
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from ..errors import CheckpointError, CheckpointsDamaged
from ..home import Home
from .keeping import locked, remove
from .places import folder_for

__all__ = ["erase"]


def erase(home: Home, tenant: str, conversation: str) -> bool:
    """Remove a shadow repository, and what an earlier removal left of it; tell whether there was one."""
    folder = folder_for(home, tenant, conversation)
    there = folder.exists()
    try:
        if there:
            _remove(folder)
        for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.tmp"):
            there = True
            shutil.rmtree(left)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of {conversation:.80} in {folder} could not be erased: {error}"
        ) from error
    return there


def _remove(folder: Path) -> None:
    with ExitStack() as stack:
        with suppress(CheckpointsDamaged):  # nobody can be at work on what cannot be locked
            stack.enter_context(locked(folder))
        remove(folder)
