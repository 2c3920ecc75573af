"""The intent of a restore: written before anything is changed, removed when files and conversation agree.

Files have a journal of their own, so they are whole whatever happens; the intent is about the two of
them together. Whoever writes one holds the lock until it is gone again, so one that is found with
nobody at the lock was left by a process that died.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import durable
from ..errors import CheckpointError, CheckpointsBusy, CheckpointsDamaged
from .acts import Act
from .journal import NAME as JOURNAL

__all__ = ["Intent", "alone", "files_are_under_way", "forget", "read", "write"]

NAME = "intent.json"
LOCK = "intent.lock"
_DRAFT = "intent.json.draft"
_PATIENCE = 60.0  # seconds to wait for another process; a restore of a large tree takes less


class Intent(Struct, frozen=True, kw_only=True):
    """What is about to happen: to the files, and to the conversation.

    ``name`` is new for each, and is the tag of the files before. ``files`` names those to bring back, if
    any. ``head`` is where the log ended before. ``placed`` is set once the files are there.
    """

    name: str
    act: Act
    files: str = ""
    hard: bool = False
    head: tuple[int, int] | None = None
    placed: bool = False


@asynccontextmanager
async def alone(folder: Path) -> AsyncIterator[None]:
    """Be the only one who moves files and conversation; the lock goes with its holder, killed or not."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, durable.FILE_MODE)
    except OSError as error:
        raise CheckpointsDamaged(
            f"there are no checkpoints in {folder} any more that could be locked: {error.strerror}; "
            "`turnstate checkpoint clean SESSION` removes what is left of them"
        ) from None
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _taken(lock):
            if time.monotonic() > deadline:
                raise CheckpointsBusy(f"another process is restoring a checkpoint of {folder}; wait for it")
            await asyncio.sleep(0.02)
        yield
    finally:
        os.close(lock)


def write(intent: Intent, folder: Path) -> None:
    """Put an intent down, durably, in the place of one that said less."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (folder / _DRAFT).unlink(missing_ok=True)
            durable.write_new(_DRAFT, msgspec.json.encode(intent), folder=opened)
            os.replace(_DRAFT, NAME, src_dir_fd=opened, dst_dir_fd=opened)
            durable.sync_folder(opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise CheckpointError(f"nothing was restored, since {folder} refuses: {error.strerror}") from error


def read(folder: Path) -> Intent | None:
    """Give the intent that a process left, if one did."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(data, type=Intent)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointsDamaged(f"{folder / NAME} cannot be read: {error}; remove it to go on") from None


def forget(folder: Path) -> None:
    """Remove an intent that was carried out or given up."""
    (folder / NAME).unlink(missing_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        durable.sync_folder(opened)
    finally:
        os.close(opened)


def files_are_under_way(folder: Path) -> bool:
    """Tell whether files have been changed, and more are about to be."""
    return (folder / JOURNAL).exists()


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
