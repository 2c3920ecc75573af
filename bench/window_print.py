"""Prints tables and goals, and records what a benchmark prints, so that a page can be made from it.

Columns are as wide as needed, and numbers are right-aligned. While a `Recorder` is the standard output,
tables and goals are recorded as data, and everything else as lines.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any, TextIO


class Recorder(io.TextIOBase):
    """A standard output that passes everything on and records it: lines, tables and goals in order."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._line = out, ""
        self.found: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        """Print text and record its lines."""
        *lines, self._line = (self._line + text).split("\n")
        self.found += [{"line": line} for line in lines if line.strip()]
        return self._out.write(text)

    def flush(self) -> None:
        """Flush the output."""
        self._out.flush()

    def add(self, item: dict[str, Any], text: str) -> None:
        """Print text and record the data that it shows."""
        self.found.append(item)
        self._out.write(text + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, ["-" * width for width in widths], *rows):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        lines.append("  ".join(cells).rstrip())
    _print({"head": list(head), "rows": [list(row) for row in rows]}, "\n".join(lines))


def ms(seconds: float | None) -> str:
    """Return a time in milliseconds as text; a dash if it was not measured."""
    return (
        "–" if seconds is None else f"{seconds * 1000:,.3f}" if seconds < 0.01 else f"{seconds * 1000:,.1f}"
    )


def times(ratio: float | None) -> str:
    """Return a ratio as text; a dash if there is none."""
    return "–" if ratio is None else f"{ratio:,.2f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


def goal(name: str, text: str, met: bool) -> None:
    """Print a goal, the measured value, and whether the goal is met."""
    _print(
        {"goal": name, "measured": text, "met": met}, f"goal: {name}: {text}: {'met' if met else 'MISSED'}"
    )


def _print(item: dict[str, Any], text: str) -> None:
    if isinstance(sys.stdout, Recorder):
        sys.stdout.add(item, text)
    else:
        print(text)
