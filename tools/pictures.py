"""Draw the pictures in `docs/img`.

    python tools/pictures.py           draw the diagrams
    python tools/pictures.py --run     run the demo in a terminal, and draw what it shows, too

A diagram is a function that draws on a `Canvas`. A canvas estimates the width of each text by a wide font,
and raises `Overlap` if a text reaches over the edge or over another text: readers have different fonts, and
a text that just fits here is cut off elsewhere. Every picture has its own background, so that it can be
read on light and dark pages.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from terminal_picture import demo_picture

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "img"

STYLE = """
    .page { fill: #fff; stroke: #d0d7de; } .panel { fill: #f6f8fa; stroke: #d0d7de; }
    .inner { fill: #fff; stroke: #8a94a0; } .line { stroke: #8a94a0; stroke-width: 2; fill: none; }
    .kept { stroke-dasharray: 4 4; }
    .names { stroke: #c47f17; stroke-width: 1.5; stroke-dasharray: 3 3; fill: none; }
    .main { fill: #3b6ea5; } .aside { fill: #c47f17; } .restore { fill: #1a7f37; }
    .snapshot { fill: #8250df; } .summary { fill: #57606a; }
    .copy { fill: #fff; stroke: #c47f17; stroke-width: 2; }
    .main.faded { fill: #b9cbe0; } .aside.faded { fill: #e8cfa4; } .line.faded { stroke: #ccd2d9; }
    text { fill: #57606a; } .title { font-weight: 600; fill: #24292f; }
    .small, .in, .on { font-size: 11px; } .in, .on { text-anchor: middle; }
    .in { fill: #fff; } .faded + .in { fill: #57606a; } .on { fill: #c47f17; }
    .head { fill: #1a7f37; font-weight: 600; }
    .code { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #24292f; }
"""
ARROW = (
    '<marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#57606a"/></marker>'
)
WIDTHS = {"": 8.2, "title": 9.0, "small": 7.0, "code": 7.6, "in": 7.0, "on": 7.0, "head": 9.0}
"""The pixels of one character, by class: those of a wide font, so that narrower ones fit as well."""

CENTERED = ("in", "on")
MARGIN = 8


class Overlap(Exception):
    """A text reaches over the edge of its picture, or over another text."""


@dataclass
class Canvas:
    """A picture of a fixed size that collects shapes and texts."""

    width: int
    height: int
    label: str
    shapes: list[str] = field(default_factory=list)
    texts: list[tuple[float, float, float, str]] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Draw a text whose baseline starts at `x`, or has its middle there, if its kind is centered."""
        length = WIDTHS[kind] * len(words)
        left = x - length / 2 if kind in CENTERED else x
        if left < MARGIN or left + length > self.width - MARGIN:
            raise Overlap(f"{words!r} reaches from {left:.0f} to {left + length:.0f} of {self.width}")
        for start, end, line, other in self.texts:
            if abs(line - y) < 11 and left < end and start < left + length:
                raise Overlap(f"{words!r} is drawn over {other!r}")
        self.texts.append((left, left + length, y, words))
        self.shapes.append(f'<text x="{x}" y="{y}"{_class(kind)}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle with round corners."""
        size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self.shapes.append(f'<rect {size} rx="7"{_class(kind)}/>')

    def dot(self, x: float, y: float, kind: str, words: str = "", radius: float = 11) -> None:
        """Draw a circle with a short text in it."""
        self.shapes.append(f'<circle cx="{x}" cy="{y}" r="{radius}"{_class(kind)}/>')
        if words:
            self.text(x, y + 4, words, "on" if kind.startswith("copy") else "in")

    def path(self, route: str, kind: str = "line", *, arrow: bool = False) -> None:
        """Draw a line along an SVG path."""
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.shapes.append(f'<path d="{route}"{_class(kind)}{end}/>')

    def svg(self) -> str:
        """Return the picture."""
        frame = (
            f'<rect x=".5" y=".5" width="{self.width - 1}" height="{self.height - 1}" rx="8" class="page"/>'
        )
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{escape(self.label)}" '
            f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">'
        )
        body = [f"  {shape}" for shape in (frame, *self.shapes)]
        return "\n".join(
            [opening, f"  <style>{STYLE}  </style>", f"  <defs>{ARROW}</defs>", *body, "</svg>", ""]
        )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def tangent() -> Canvas:
    """Draw the head before, in and after a tangent."""
    canvas = Canvas(
        860, 312, "The head before a tangent, in it, after it, and after it with the last exchange"
    )
    rows = [
        ("before", "", "the main conversation"),
        ("in the tangent", "aside", "a branch: nothing is copied"),
        ("left", "aside faded", "as before; 5 and 6 are kept"),
        ("left with tail", "aside faded", "the last exchange, with new ids"),
    ]
    for number, (title, kind, note) in enumerate(rows):
        y = 40 + 72 * number
        tail = title == "left with tail"
        canvas.text(24, y + 4, title, "title")
        canvas.path(f"M180 {y}H{440 if tail else 330}")
        if kind:
            dashed = "line kept" if "faded" in kind else "line"
            canvas.path(f"M330 {y}C358 {y} 358 {y + 32} 386 {y + 32}H440", dashed)
        for place in range(4):
            canvas.dot(180 + 50 * place, y, "main", str(place + 1))
        for place, x in ((5, 386), (6, 440)):
            if kind:
                canvas.dot(x, y + 32, kind, str(place))
            if tail:
                canvas.dot(x, y, "copy", f"{place}′")
        inside = title == "in the tangent"
        canvas.text(458 if tail or inside else 348, y + (36 if inside else 4), "◄ head", "head")
        canvas.text(575, y + 4, note)
    return canvas


def checkpoints() -> Canvas:
    """Draw a log with checkpoints above, and the snapshots that they name below."""
    canvas = Canvas(880, 420, "A session's log with checkpoints, and the snapshots of files that they name")
    canvas.box(12, 12, 856, 206, "panel")
    canvas.text(26, 36, "The log of the session", "title")
    for x, kind, words in (
        (330, "main", "message"),
        (440, "aside", "checkpoint"),
        (570, "restore", "restore of 1"),
    ):
        canvas.dot(x, 32, kind, radius=7)
        canvas.text(x + 13, 36, words, "small")
    canvas.box(12, 258, 856, 150, "panel")
    canvas.text(26, 282, "The shadow repository, in TURNSTATE_HOME", "title")
    canvas.text(420, 282, "a file that did not change is stored once", "small")

    log, branch, snapshots = 86, 164, 352
    canvas.path(f"M60 {log}H330")
    canvas.path(f"M330 {log}H590", "line faded")
    canvas.path(f"M330 {log}C365 {log} 365 {branch} 400 {branch}H510")
    canvas.path(f"M60 {snapshots}H735")
    named = {60: "0", 200: "1.1", 330: "1", 480: "2.1", 590: "2"}
    for x in named:
        canvas.path(f"M{x} {log}V238M{x} 294V{snapshots}", "names")
    canvas.path(f"M412 {branch}V238M660 294V{snapshots}", "names")
    canvas.path("M412 238H660", "names")
    for x in (*named, 660):
        canvas.path(f"M{x} 238V258", "names")
    for x, label in named.items():
        canvas.dot(x, log, "aside faded" if x > 330 else "aside", label, radius=14)
    for x in (110, 150, 245, 285, 385, 425, 535):
        canvas.dot(x, log, "main faded" if x > 330 else "main", radius=8)
    canvas.text(625, 82, "later messages stay:")
    canvas.text(625, 99, "undo selects them again")
    canvas.dot(412, branch, "restore", "↶ 1", radius=14)
    for x in (458, 496):
        canvas.dot(x, branch, "main", radius=8)
    canvas.text(515, branch + 4, "◄ head", "head")
    for x in (*named, 660, 735):
        canvas.box(x - 14, snapshots - 14, 28, 28, "snapshot")
    canvas.text(46, 392, "a snapshot contains the files at one point", "small")
    canvas.text(612, 392, "before", "small")
    canvas.text(700, 392, "after the restore", "small")
    return canvas


def concepts() -> Canvas:
    """Draw a store with sessions, a session's log, and what is made from it."""
    canvas = Canvas(
        880, 500, "A store contains sessions; a session is a log; windows and states are views of it"
    )
    canvas.box(12, 12, 856, 250, "panel")
    canvas.text(26, 36, "Store", "title")
    canvas.text(
        80, 36, "memory, SQLite, PostgreSQL, Redis or Valkey; shared by any number of processes", "small"
    )
    canvas.box(26, 52, 690, 196, "inner")
    canvas.text(40, 76, "Session", "title")
    canvas.text(112, 76, "one conversation of one user; its log only grows", "small")
    canvas.box(732, 52, 122, 90, "inner")
    canvas.text(744, 76, "Session", "title")
    canvas.box(732, 158, 122, 90, "inner")
    canvas.text(744, 182, "Session", "title")
    for y in (110, 216):
        canvas.path(f"M752 {y}H832")
        for x in (752, 792, 832):
            canvas.dot(x, y, "main", radius=7)

    _draw_log(canvas)
    _draw_window(canvas)
    _draw_state(canvas)
    return canvas


def _draw_log(canvas: Canvas) -> None:
    log, branch = 128, 194
    canvas.text(40, log + 4, "Log", "title")
    canvas.path(f"M110 {log}H590")
    canvas.path(f"M290 {log}C325 {log} 325 {branch} 360 {branch}H470", "line kept")
    for number in range(7):
        canvas.dot(110 + 60 * number, log, "main", str(number + 1))
    canvas.dot(530, log, "summary", "cut")
    canvas.dot(590, log, "main", "8")
    canvas.text(608, log + 4, "◄ head", "head")
    canvas.text(110, 158, "entries: messages and decisions", "small")
    for number, x in ((5, 360), (6, 415), (7, 470)):
        canvas.dot(x, branch, "aside", f"{number}′")
    canvas.text(490, branch + 4, "Branch", "title")
    canvas.text(552, branch + 4, "left, not deleted", "small")
    canvas.text(
        110, 234, "append and compact add entries; rewind, fork, tangents and undo select a branch", "small"
    )


def _draw_window(canvas: Canvas) -> None:
    canvas.path("M170 262V340", arrow=True)
    canvas.text(180, 296, "session.window(budget)", "code")
    canvas.text(180, 316, "what the next request contains", "small")
    canvas.box(26, 342, 400, 142, "panel")
    canvas.text(40, 366, "Window", "title")
    canvas.text(112, 366, "fits the budget, is valid", "small")
    places = [
        (60, "main", "sys"),
        (120, "summary", "sum"),
        (180, "main", "5"),
        (240, "main", "6"),
        (300, "main", "7"),
        (360, "main", "8"),
    ]
    canvas.path("M60 404H360")
    for x, kind, words in places:
        canvas.dot(x, 404, kind, words, radius=14)
    canvas.text(40, 444, "the summary replaces 1 to 4, which stay in the log", "small")
    canvas.text(40, 466, "rendered for one of five providers", "small")


def _draw_state(canvas: Canvas) -> None:
    canvas.path("M560 262V340", arrow=True)
    canvas.text(570, 296, "session.conversation()", "code")
    canvas.text(570, 316, "what people see of it", "small")
    canvas.box(454, 342, 414, 142, "panel")
    canvas.text(468, 366, "State", "title")
    canvas.text(522, 366, "ConversationState", "code")
    canvas.text(468, 396, "one version of the same log, to read:", "small")
    canvas.text(468, 418, "history, next message, transcript, tools,", "small")
    canvas.text(468, 436, "model, sticky files, tangents", "small")
    canvas.text(468, 466, "what is changed, the session changes", "small")


DIAGRAMS = {"tangent": tangent, "checkpoints": checkpoints, "concepts": concepts}


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", action="store_true", help="run the demo, and draw what its terminal shows")
    options = parser.parse_args()
    for name, draw in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw().svg(), "utf-8")
    if options.run:
        (PICTURES / "demo.svg").write_text(demo_picture(), "utf-8")


if __name__ == "__main__":
    main()
