"""A progress bar on stderr, for people who wait: never in a pipe, never for one conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import screen

__all__ = ["Step", "metered", "shown", "waiting"]

Advance = Callable[[int], None]


@contextmanager
def shown(size: int | None, *, many: bool) -> Iterator[Advance]:
    """Show progress through an input of ``size`` bytes; call the result with the bytes of each step."""
    if not (many and sys.stderr is not None and sys.stderr.isatty()):
        yield lambda _size: None
        return
    with _bar(size) as advance:
        yield advance


@contextmanager
def _bar(size: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Results on the same terminal are led around the bar; results in a pipe are left alone.
    results_too = screen.on_terminal()
    columns = (BarColumn(), TextColumn("{task.fields[seen]:,} conversations"), TimeElapsedColumn())
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=results_too) as progress:
        task = progress.add_task("", total=size, seen=0)
        seen = 0

        def advance(size: int) -> None:
            nonlocal seen
            seen += 1
            progress.update(task, advance=size, seen=seen)

        yield advance


# A meter on stderr for long work on a store: how much is done, of how much if that is known.


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


# A sign on stderr that something is being done whose end nobody can foretell; never in a pipe.


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
