"""The intent of a restore: written before anything is changed, removed when files and conversation agree.

Files have a journal of their own, so they are whole whatever happens; the intent is about the two of
them together. A process that finds one finishes what it says.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import durable
from ..errors import CheckpointsDamaged

__all__ = ["Intent", "forget", "read", "write"]

NAME = "intent.json"


class Intent(Struct, frozen=True, kw_only=True):
    """What is being restored: which moment, of what, and where the log was before.

    ``place`` counts the entries of the conversation at that moment; ``head`` is the branch and the entry
    that the log ended with, which is elsewhere once the conversation is restored.
    """

    label: str
    commit: str
    place: int
    undo: str
    files: bool
    conversation: bool
    hard: bool
    head: tuple[int, int] | None = None


def write(intent: Intent, folder: Path) -> None:
    """Put an intent down, durably."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        temporary = f".{NAME}.tmp"
        Path(folder, temporary).unlink(missing_ok=True)
        durable.write_new(temporary, msgspec.json.encode(intent), folder=opened)
        os.replace(temporary, NAME, src_dir_fd=opened, dst_dir_fd=opened)
        durable.sync_folder(opened)
    finally:
        os.close(opened)


def read(folder: Path) -> Intent | None:
    """Give the intent that a process left, if one did."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Intent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error}; remove it to go on") from None


def forget(folder: Path) -> None:
    """Remove an intent that was carried out."""
    (folder / NAME).unlink(missing_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        durable.sync_folder(opened)
    finally:
        os.close(opened)
