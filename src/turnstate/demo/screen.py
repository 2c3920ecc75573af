"""The output of the demo: headings, lines, a bar that fills, and claims with a tick or a cross.

A claim is made with the result of the comparison that proves it. A false claim is shown as such and the demo
exits with 1, so a test can plant a fault and check that it is caught.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap

import click

from ..terminal import screen

COLUMNS = 80
INDENT = "  "
BAR = 24
NOTE_LINES = 2

_silent = False


def heading(text: str) -> None:
    """Write a heading."""
    line("")
    strong(text)


def strong(text: str) -> None:
    """Write a bold line."""
    line(_styled(text, bold=True))


def quiet(text: str) -> None:
    """Write a dim line."""
    line(_styled(text, dim=True))


def line(text: str) -> None:
    """Write a line."""
    if not _silent:
        screen.display(text)
        screen.flush()


@contextmanager
def silence() -> Iterator[None]:
    """Show nothing while the block runs."""
    global _silent  # noqa: PLW0603 - a program has one screen
    _silent = True
    try:
        yield
    finally:
        _silent = False


def note(text: str, *, margin: int) -> None:
    """Write an indented note, shortened to `NOTE_LINES` lines."""
    for one in wrap(text, COLUMNS - margin, max_lines=NOTE_LINES, placeholder="…"):
        quiet(f"{' ' * margin}{one}")


def ticked(text: str, *, good: bool) -> None:
    """Write a claim with a tick, or with a cross if it is false."""
    mark, color = ("✓", "green") if good else ("✗", "red")
    first, *more = wrap(text if good else f"FALSE: {text}", COLUMNS - len(INDENT) - 2)
    line(f"{INDENT}{_styled(mark, fg=color)} {first}")
    for one in more:
        line(f"{INDENT}  {one}")


def moving(text: str) -> None:
    """Show a line that the next one replaces; in a pipe, show nothing. Call `clear` after the last one."""
    if _can_move() and not _silent:
        encoding = sys.stdout.encoding or "utf-8"
        width = min(COLUMNS, get_terminal_size().columns) - 1  # a line that wraps cannot be replaced
        shown = f"{text[:width].ljust(width)}\r"
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()


def clear() -> None:
    """Remove the moving line."""
    moving("")


def bar(tokens: int, limit: int) -> str:
    """Return a bar that shows how full a budget is."""
    filled = min(BAR, round(BAR * tokens / limit))
    return f"{'█' * filled}{'░' * (BAR - filled)} {tokens:>6,} of {limit:,}"


def _can_move() -> bool:
    return screen.on_terminal() and os.environ.get("TERM") != "dumb"


def _styled(text: str, *, bold: bool = False, dim: bool = False, fg: str | None = None) -> str:
    if not _can_move() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, bold=bold or None, dim=dim or None, fg=fg)


class Claims:
    """The claims made so far, and those that were false."""

    def __init__(self) -> None:
        self.made = 0
        self.texts, self.false = list[str](), list[str]()

    def make(self, text: str, *, holds: bool) -> None:
        """Show a claim and whether it holds."""
        self.made += 1
        self.texts.append(text)
        if not holds:
            self.false.append(text)
        ticked(text, good=holds)

    def conclude(self) -> None:
        """Show how many claims held."""
        if self.false:
            heading(f"{len(self.false)} of {self.made} claims do not hold.")
        else:
            heading(f"{self.made} claims, each verified just now: all hold.")

    def to_json(self) -> list[dict[str, object]]:
        """Return the claims, each with whether it holds."""
        return [{"claim": text, "holds": text not in self.false} for text in self.texts]
