"""Prints tables and goals, and keeps what a bench prints, so that a page can be made of the same figures.

Columns are as wide as needed, figures aligned right. While a `Recorder` is the standard output, tables and
goals are kept as they were given, and everything else as lines.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any, TextIO


class Recorder(io.TextIOBase):
    """A standard output that passes everything on and keeps it: lines, tables and goals in order."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._line = out, ""
        self.found: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        """Print text, and keep its lines."""
        *lines, self._line = (self._line + text).split("\n")
        self.found += [{"line": line} for line in lines if line.strip()]
        return self._out.write(text)

    def flush(self) -> None:
        """Print what is still waiting."""
        self._out.flush()

    def add(self, item: dict[str, Any], text: str) -> None:
        """Print text, and keep what it stands for."""
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
    """Write a time in milliseconds; a dash for what was not measured."""
    return (
        "–" if seconds is None else f"{seconds * 1000:,.3f}" if seconds < 0.01 else f"{seconds * 1000:,.1f}"
    )


def times(ratio: float | None) -> str:
    """Write how many times one figure is another."""
    return "–" if ratio is None else f"{ratio:,.2f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


def goal(name: str, text: str, met: bool) -> None:
    """Print a goal, what was measured, and whether that is enough."""
    _print(
        {"goal": name, "measured": text, "met": met}, f"goal: {name}: {text}: {'met' if met else 'MISSED'}"
    )


def _print(item: dict[str, Any], text: str) -> None:
    if isinstance(sys.stdout, Recorder):
        sys.stdout.add(item, text)
    else:
        print(text)
