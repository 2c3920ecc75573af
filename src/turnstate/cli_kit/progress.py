"""Progress bars and a spinner on stderr, shown only if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import screen

Advance = Callable[[int], None]
"""Takes the number of bytes of the conversation that was just finished."""

Step = Callable[[int, int], None]
"""Takes the position of the bar, and the number of items done."""


@contextmanager
def shown(size: int | None, *, many: bool) -> Iterator[Advance]:
    """Show progress through a JSONL input of ``size`` bytes, if known; show nothing for one document."""
    if not many:
        yield lambda _size: None
        return
    with metered("conversations", size) as step:
        far = done = 0

        def advance(size: int) -> None:
            nonlocal far, done
            far, done = far + size, done + 1
            step(far, done)

        yield advance


@contextmanager
def metered(noun: str, total: int | None = None) -> Iterator[Step]:
    """Show a progress bar; call the yielded function after each step."""
    if not _visible():
        yield lambda _far, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn(f"{{task.fields[done]:,}} {noun}"), TimeElapsedColumn())
    console = Console(stderr=True, soft_wrap=True)
    # Results on the same terminal must go through rich, or they break the bar; a pipe is left alone.
    redirect = screen.on_terminal()
    with Progress(*columns, console=console, transient=True, redirect_stdout=redirect) as progress:
        task = progress.add_task("", total=total, done=0)
        yield lambda far, done: progress.update(task, completed=far, done=done)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show a spinner with a text and the elapsed time while the block runs."""
    if not _visible():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), transient=True) as progress:
        progress.add_task(screen.escaped(text), total=None)
        yield


def _visible() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
