"""A table for people: as wide as their terminal, or as wide as it is where a program reads it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from . import screen
from .screen import styled

__all__ = ["table"]

GAP = "  "
WIDEST = 10_000
LONGEST_CELL = 200
NARROWEST = 8  # of the last column, in a terminal that has no room for it


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Lay rows out in columns, one line each; where a terminal is too narrow, the last column is cut."""
    from rich.cells import cell_len, chop_cells

    cells = [list(columns), *([screen.escaped(cell, LONGEST_CELL) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = shutil.get_terminal_size().columns if screen.on_terminal() else WIDEST
    widths[-1] = min(widths[-1], max(NARROWEST, room - sum(widths[:-1]) - len(GAP) * len(widths[:-1])))

    def laid(row: Sequence[str]) -> str:
        return GAP.join(map(cell, row, columns, widths)).rstrip()

    def cell(text: str, column: str, width: int) -> str:
        if cell_len(text) > width:
            text = f"{chop_cells(text, width - 1)[0]}…"
        space = " " * (width - cell_len(text))
        return f"{space}{text}" if column in right else f"{text}{space}"

    heading, *lines = map(laid, cells)
    return "\n".join([styled(heading, bold=True), *lines])
