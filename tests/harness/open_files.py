"""What a test leaves open: a store or a memory that nobody closes keeps its locks until the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnstate import open_databases
from turnstate.descriptors import closing_lock


@contextmanager
def all_closed() -> Iterator[None]:
    """Fail if a database file that is opened in the block is still open after it."""
    before = _open()
    yield
    left = [held.path for held in _open() - before]
    assert not left, f"left open: {', '.join(left)}"


def _open() -> set[open_databases.DatabaseHold]:
    with closing_lock:
        open_databases._forget_idle()  # kept for other connections of the process, which are closed by now
        return {*open_databases._held.values()}
