"""What the demo claims: each sentence comes with the comparison that bears it out.

A sentence whose comparison fails is shown as such, and the demo ends with 1. So nobody has to take a
tick for granted, and a test can plant a falsehood to see it caught.
"""

from __future__ import annotations

import os
import sys
from shutil import get_terminal_size
from textwrap import wrap

import click

from ..cli_kit import screen

__all__ = [
    "COLUMNS",
    "Claims",
    "bar",
    "clear",
    "heading",
    "line",
    "moving",
    "note",
    "quiet",
    "strong",
    "ticked",
]

# How the demo looks: headings, lines, ticks, and a bar that fills.


COLUMNS = 80
INDENT = "  "
BAR = 24
NOTE_LINES = 2


def heading(text: str) -> None:
    """Begin something new."""
    line("")
    strong(text)


def strong(text: str) -> None:
    """Write a line that stands out."""
    line(_styled(text, bold=True))


def quiet(text: str) -> None:
    """Write a line that does not."""
    line(_styled(text, dim=True))


def line(text: str) -> None:
    """Write a line that stays."""
    screen.display(text)
    screen.flush()


def note(text: str, *, margin: int) -> None:
    """Write a text below what it belongs to, as much of it as a few lines take."""
    for one in wrap(text, COLUMNS - margin, max_lines=NOTE_LINES, placeholder="…"):
        quiet(f"{' ' * margin}{one}")


def ticked(text: str, *, good: bool) -> None:
    """Write a claim, with a tick or with what must not be."""
    mark, colour = ("✓", "green") if good else ("✗", "red")
    first, *more = wrap(text if good else f"NOT SO: {text}", COLUMNS - len(INDENT) - 2)
    line(f"{INDENT}{_styled(mark, fg=colour)} {first}")
    for one in more:
        line(f"{INDENT}  {one}")


def moving(text: str) -> None:
    """Show a line that the next one replaces; nothing in a pipe. Behind the last one, `clear`."""
    if _can_move():
        encoding = sys.stdout.encoding or "utf-8"
        width = min(COLUMNS, get_terminal_size().columns) - 1  # a line that wraps cannot be replaced
        shown = f"{text[:width].ljust(width)}\r"
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()


def clear() -> None:
    """Take away the line that moved."""
    moving("")


def bar(tokens: int, limit: int) -> str:
    """Draw how full a budget is."""
    filled = min(BAR, round(BAR * tokens / limit))
    return f"{'█' * filled}{'░' * (BAR - filled)} {tokens:>6,} of {limit:,}"


def _can_move() -> bool:
    return screen.on_terminal() and os.environ.get("TERM") != "dumb"


def _styled(text: str, *, bold: bool = False, dim: bool = False, fg: str | None = None) -> str:
    if not _can_move() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, bold=bold or None, dim=dim or None, fg=fg)


class Claims:
    """The sentences so far, and those of them that were not so."""

    def __init__(self) -> None:
        self.made = 0
        self.false = list[str]()

    def make(self, text: str, *, holds: bool) -> None:
        """Show a sentence, and whether it is so."""
        self.made += 1
        if not holds:
            self.false.append(text)
        ticked(text, good=holds)

    def conclude(self) -> bool:
        """Say how many held; tell whether all did."""
        if self.false:
            heading(f"{len(self.false)} of {self.made} claims do not hold.")
        else:
            heading(f"{self.made} claims, each compared just now: all hold.")
        return not self.false
