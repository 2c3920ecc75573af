"""Prints tables: columns as wide as needed, figures aligned right."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, ["-" * width for width in widths], *rows):
        first, *others = zip(row, widths, strict=True)
        print("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip())


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
    print(f"goal: {name}: {text}: {'met' if met else 'MISSED'}")
