"""A sign on stderr that something is being done whose end nobody can foretell; never in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from . import screen

__all__ = ["waiting"]


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show what is being done and for how long, and nothing once it is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), transient=True) as progress:
        progress.add_task(screen.escaped(text), total=None)
        yield
