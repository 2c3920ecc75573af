"""A picture of a terminal, from a real run of the demo.

The demo runs in a pseudo terminal of 80 columns. Its output is interpreted like a terminal does, as far as
the demo needs it: a carriage return overwrites the line, and escape sequences set bold, dim and colors.
Each text is drawn with the width that it has on a grid of columns (`textLength`), so that no font can move
it over the edge.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

COLUMNS = 80
COLUMN = 8.4
ROW = 18
EDGE = 18
BAR = 34
"""Pixels: the width of a column, the height of a row, the space around the text, the title bar."""

STYLE = 'text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #c9d1d9 }'
BUTTONS = {20: "#ff5f57", 40: "#febc2e", 60: "#28c840"}
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")
WORDS = re.compile(r"\S+(?: \S+)*")
"""What is drawn as one text. Viewers collapse several spaces, so these are not part of any."""

COLORS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#56d4dd",
}
LAST = "all hold"
"""The story of the demo ends with this line; its tour of the commands follows, and is not drawn."""


class Cell(NamedTuple):
    """One character on the screen, and how it is drawn."""

    character: str
    style: str


def record(*command: str) -> str:
    """Return what a command writes to a terminal of 80 columns."""
    child, terminal = pty.fork()
    if child == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
        environment.pop("NO_COLOR", None)
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    written = b""
    while True:
        try:
            block = os.read(terminal, 65_536)
        except OSError:  # Linux: the other end is closed
            break
        if not block:
            break
        written += block
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}; nothing is drawn")
    return written.decode()


def screen(written: str) -> list[list[Cell]]:
    """Return the lines that a terminal shows after everything was written."""
    lines: list[list[Cell]] = []
    style = ""
    for line in written.replace("\r\n", "\n").split("\n"):
        cells: list[Cell] = []
        column = position = 0
        while position < len(line):
            if found := SEQUENCE.match(line, position):
                style = _style(style, found[1]) if found[2] == "m" else style
                position = found.end()
                continue
            if line[position] == "\r":
                column = 0
            else:
                cells[column : column + 1] = [Cell(line[position], style)]
                column += 1
            position += 1
        while cells and cells[-1].character == " ":
            cells.pop()
        lines.append(cells)
    return lines


def _style(style: str, codes: str) -> str:
    for code in codes.split(";"):
        if code in ("", "0"):
            style = ""
        elif code == "1":
            style += "font-weight:600;fill:#f0f6fc;"
        elif code == "2":
            style += "fill:#8b949e;"
        elif code in COLORS:
            style += f"fill:{COLORS[code]};"
    return style


def drawing(lines: list[list[Cell]], title: str) -> str:
    """Return the lines as the SVG of a terminal window."""
    width = round(COLUMNS * COLUMN + 2 * EDGE)
    height = round(len(lines) * ROW + 2 * EDGE + BAR - ROW / 2)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="9" fill="#0d1117"/>',
        *(f'<circle cx="{x}" cy="18" r="6" fill="{color}"/>' for x, color in BUTTONS.items()),
        f'<text x="{width / 2}" y="23" text-anchor="middle" style="fill:#8b949e">{escape(title)}</text>',
    ]
    for row, cells in enumerate(lines):
        y = BAR + EDGE + row * ROW
        column = 0
        for style, group in groupby(cells, key=lambda cell: cell.style):
            run = "".join(cell.character for cell in group)
            look = f' style="{style}"' if style else ""
            for words in WORDS.finditer(run):
                x, length = EDGE + (column + words.start()) * COLUMN, len(words[0]) * COLUMN
                grid = f'textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
                parts.append(f'<text x="{x:.1f}" y="{y}" {grid}{look}>{escape(words[0])}</text>')
            column += len(run)
    return "\n".join([*parts, "</svg>", ""])


def demo_picture() -> str:
    """Run the demo and return the picture of its story."""
    turnstate = Path(sys.executable).with_name("turnstate")
    lines = screen(record(str(turnstate), "demo"))
    ends = [row for row, cells in enumerate(lines) if LAST in "".join(cell.character for cell in cells)]
    if not ends:
        raise SystemExit(f"the demo wrote no line with {LAST!r}")
    return drawing(lines[: ends[0] + 1], "make run")
