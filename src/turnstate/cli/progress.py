"""A progress bar on stderr, for people who wait: never in a pipe, never for one conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import screen
from .source import Source

__all__ = ["shown"]

Advance = Callable[[int], None]


@contextmanager
def shown(source: Source) -> Iterator[Advance]:
    """Show how far the walk through a source is; call what this gives with the bytes of each step."""
    if not (source.many and sys.stderr is not None and sys.stderr.isatty()):
        yield lambda _size: None
        return
    with _bar(source) as advance:
        yield advance


@contextmanager
def _bar(source: Source) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Results on the same terminal are led around the bar; results in a pipe are left alone.
    results_too = screen.on_terminal()
    columns = (BarColumn(), TextColumn("{task.fields[seen]:,} conversations"), TimeElapsedColumn())
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=results_too) as progress:
        task = progress.add_task("", total=source.size, seen=0)
        seen = 0

        def advance(size: int) -> None:
            nonlocal seen
            seen += 1
            progress.update(task, advance=size, seen=seen)

        yield advance
