"""List what is in a folder and below it, through descriptors, one name at a time, and never through a link.

So neither ``..`` nor a link leads out of the folder, nor a folder that is swapped for a link in the meantime.
The worker process imports this module, so it imports almost nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

MAX_DEPTH = 64
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Folders that a walk does not enter."""

_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileInfo(NamedTuple):
    """A name in a folder: its path from the root of the workspace, its kind, and its size."""

    path: str
    kind: str
    size: int


@contextmanager
def folder_at(root: str | os.PathLike[str], path: str) -> Iterator[int]:
    """Open the folder at a relative path below another one, and yield its descriptor."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.split("/") if path else ():
            above, descriptor = descriptor, -1
            try:
                descriptor = os.open(name, _INTO, dir_fd=above)
            finally:
                os.close(above)
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def listed(folder: int, path: str) -> list[FileInfo]:
    """Return what is in an open folder, sorted by name; links are listed but not followed."""
    found = list[FileInfo]()
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                below = f"{path}/{entry.name}" if path else entry.name
                found.append(FileInfo(below, _kind(status.st_mode), status.st_size))
    return found


def walk(folder: int, path: str, depth: int = 0) -> Iterator[tuple[int, list[FileInfo]]]:
    """Yield an open folder and what is in it, then each one below; skip those that no one edits (`SKIPPED`).

    A descriptor is valid until the next one is asked for. What is removed from a list is not entered.
    """
    found = listed(folder, path)
    yield folder, found
    for one in found:
        name = one.path.rpartition("/")[2]
        if one.kind != "folder" or name in SKIPPED or depth == MAX_DEPTH:
            continue
        try:
            below = os.open(name, _INTO, dir_fd=folder)
        except OSError:
            continue  # it was deleted, or replaced with a link
        try:
            yield from walk(below, one.path, depth + 1)
        finally:
            os.close(below)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
