"""A shelf: the notebooks of one tenant in a folder of their own, and the lock that writers hold.

Names of tenants and users come from outside. A file name is made of what is harmless in the name, for
people, and of a digest of all of it, which tells any two names apart on every file system.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import durable
from ..errors import StoreUnavailable
from . import lines
from .lines import UserLine
from .notebook import Notebook, lines_of

__all__ = ["Shelf"]

LOCK = "lock"
PATIENCE = 10.0
"""Seconds to wait for another writer, who holds the lock for one batch of messages."""

MOST_NOTEBOOKS = 64
"""Notebooks whose lines are remembered; the others are read again when they are written to."""

NO_USER = "no-user"  # no user's file is called so: theirs end in a digest
_READABLE = 40


class Shelf:
    """The notebooks of one tenant."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self._folder = folder / _named(tenant)
        self._tenant = tenant
        self._open: dict[Path, Notebook] = {}

    def path(self, user: str | None) -> Path:
        """Name the file of a user, or of those who have no name."""
        return self._folder / f"{NO_USER if user is None else _named(user)}.jsonl"

    def notebook(self, user: str | None) -> Notebook:
        """Give the notebook of a user."""
        path = self.path(user)
        notebook = self._open.pop(path, None) or Notebook(path, self._tenant, user)
        self._open[path] = notebook
        if len(self._open) > MOST_NOTEBOOKS:
            del self._open[next(iter(self._open))]
        return notebook

    def notebooks(self) -> Iterator[Notebook]:
        """Give all notebooks that there are."""
        for path in sorted(self._folder.glob("*.jsonl")):
            first = next(lines_of(path), b"")
            line = lines.read(first)
            yield Notebook(path, self._tenant, line.user if isinstance(line, UserLine) else None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Write alone, among the threads and processes that use this folder."""
        durable.make_folder(self._folder)
        lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            self._acquire(lock)
            yield
        finally:
            os.close(lock)

    def _acquire(self, lock: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"{self._folder}: another process has held the lock for {PATIENCE:g} s; try again"
                    ) from None
                time.sleep(0.005)
            else:
                return


def _named(name: str) -> str:
    readable = re.sub(r"[^a-z0-9_]+", "-", name[:_READABLE].lower()).strip("-")
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{readable}-{digest}" if readable else digest
