"""A meter on stderr for long work on a store: how much is done, of how much if that is known.

Never in a pipe; gone when the work is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import screen

__all__ = ["Step", "metered"]

Step = Callable[[int, int], None]
"""Takes how far the work is, and how many things are done."""


@contextmanager
def metered(noun: str, total: int | None = None) -> Iterator[Step]:
    """Show how far some work is; call what this gives after each step."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _far, _done: None
        return
    with _meter(noun, total) as step:
        yield step


@contextmanager
def _meter(noun: str, total: int | None) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Results on the same terminal are led around the meter; results in a pipe are left alone.
    results_too = screen.on_terminal()
    columns = (BarColumn(), TextColumn(f"{{task.fields[done]:,}} {noun}"), TimeElapsedColumn())
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=results_too) as progress:
        task = progress.add_task("", total=total, done=0)
        yield lambda far, done: progress.update(task, completed=far, done=done)
