"""Run the benches that the page of benchmarks shows, and write the page's figures, tables and plots.

    python tools/benchmarks.py                run all of them and write everything
    python tools/benchmarks.py search         run one again and write everything
    python tools/benchmarks.py --draw         write page and plots from the figures that are there

`docs/benchmarks.json` holds what the benches printed, and nothing else is read: no figure on the page is
written by hand. A bench that fails keeps its former figures, with the day on which they were measured.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pictures import Canvas

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE, PICTURES = ROOT / "docs/benchmarks.json", ROOT / "docs/benchmarks.md", ROOT / "docs/img"
BENCHES = ("windows", "digest", "sessions", "servers", "search")
PEERS = ("openai-agents", "LangGraph")
OURS = "Turnstate"

_TITLE = re.compile(
    r"(?:Append|Catching|Cold|Counts|Disk|Facts|First page|\d+ clients|One |Open|Read"
    r"|Survivors|The s|Throughput|Windows|Without )"
)
"""How the line above a table begins; other lines there belong to the table before it, or explain."""

_FIGURE = re.compile(r"[\d.,]+%?(?: ×)?|–")

Found = dict[str, dict[str, Any]]


class Table(NamedTuple):
    """A table of a bench, with the heading above it and the lines before it."""

    section: str
    title: str
    lines: list[str]
    head: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> dict[str, float]:
        """Return the figures of a column by the first cell of each row; dashes are left out."""
        if name not in self.head:
            return {}
        place = self.head.index(name)
        return {row[0]: figure for row in self.rows if (figure := number(row[place])) is not None}

    def row(self, name: str) -> dict[str, float]:
        """Return the figures of a row by the heads of their columns."""
        cells = next((row for row in self.rows if row[0] == name), [])
        named = zip(self.head[1:], cells[1:], strict=False)
        return {head: figure for head, cell in named if (figure := number(cell)) is not None}


def main() -> None:
    """Run what is asked for, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", default=BENCHES, help=", ".join(BENCHES))
    parser.add_argument("--draw", action="store_true", help="run nothing")
    given = parser.parse_args()
    found: Found = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    for name in () if given.draw else given.names:
        found |= run(name)
        FIGURES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for former in PICTURES.glob("bench-*.svg"):
        former.unlink()
    for name, picture in plots(found).items():
        (PICTURES / f"{name}.svg").write_text(picture.svg(), "utf-8")
    PAGE.write_text(page(PAGE.read_text("utf-8"), found), "utf-8")


def run(name: str) -> Found:
    """Run a bench in a process of its own; return what it printed, or nothing if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", "bench", name, "--brief", "--json", str(file)]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode or not file.exists():
            print(f"{name} failed; its former figures stay", file=sys.stderr)
            return {}
        found: Found = json.loads(file.read_text("utf-8"))
        return found


def page(text: str, found: Found) -> str:
    """Return the page with all its parts of figures written again."""
    parts = {"goals": goals(found), "ahead": ahead(found)}
    parts |= {name: figures(name, found) for name in BENCHES}
    for name, lines in parts.items():
        mark = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = text.partition(mark[0])
        _, end, after = rest.partition(mark[1])
        if not end:
            raise ValueError(f"{PAGE.name} has no part {name!r}")
        text = "\n".join([before + mark[0], *lines, mark[1] + after])
    return text


def tables(name: str, found: Found) -> Iterator[Table]:
    """Yield the tables of a bench."""
    section, lines = "", list[str]()
    for item in found.get(name, {}).get("printed", ()):
        if "head" in item:
            title = next((line for line in reversed(lines) if _TITLE.match(line)), "")
            yield Table(section, title, lines, item["head"], item["rows"])
        if "line" not in item:
            lines = []
        elif item["line"].startswith("## "):
            section, lines = item["line"].removeprefix("## "), []
        else:
            lines = [*lines, item["line"]]


def table_of(name: str, found: Found, title: str, section: str = "") -> Table | None:
    """Return the first table with a line that begins so, if there is one."""
    for one in tables(name, found):
        if one.section.startswith(section) and any(line.startswith(title) for line in one.lines):
            return one
    return None


def number(cell: str) -> float | None:
    """Return the figure that a cell begins with; None for a dash or a word."""
    match = re.match(r"-?[\d,]*\.?\d+", cell)
    return float(match[0].replace(",", "")) if match else None


# The parts of the page.


def goals(found: Found) -> list[str]:
    """Write what was aimed at, and what was measured."""
    rows = [
        [name, item["goal"], item["measured"], "met" if item["met"] else "**missed**"]
        for name in BENCHES
        for item in found.get(name, {}).get("printed", ())
        if "goal" in item
    ]
    return ["", *markdown(["bench", "goal", "measured", ""], rows), ""]


def figures(name: str, found: Found) -> list[str]:
    """Write the day, the machine, the versions of peers, and the tables of a bench."""
    if name not in found:
        return ["", "Not measured yet.", ""]
    one = found[name]
    when = (
        f"Measured on {one['day']}, Python {one['python']}, {one['machine']}, load {one['load']} at the start"
    )
    lines = ["", f"{when}, in {one['seconds']:,} s."]
    peers = [
        item["line"] for item in one["printed"] if item.get("line", "").startswith(("peer:", "without "))
    ]
    lines += [f"{line[0].upper()}{line[1:].rstrip(',')}." for line in dict.fromkeys(peers)]
    lines += ["", *(f"![{picture.label}](img/{plot}.svg)" for plot, picture in plots({name: one}).items())]
    section = ""
    for table in tables(name, found):
        if table.section != section:
            section = table.section
            lines += ["", f"### {section}"]
        said = table.lines[table.lines.index(table.title) :] if table.title else []
        lines += ["", *said, "", *markdown(table.head, table.rows)]
    return [*lines, ""]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write a table, figures aligned right."""
    ruler = ["---:" if rows and _FIGURE.fullmatch(cell) else "---" for cell in (rows[0] if rows else head)]
    return [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, ruler, *rows)
    ]


def ahead(found: Found) -> list[str]:
    """List the figures in which a peer is faster or smaller than we are."""
    listed = [line for name in BENCHES for table in tables(name, found) for line in behind(table)]
    if not listed:
        return ["", "In no figure of this page is a peer ahead.", ""]
    return ["", *markdown(["figure", "case", "peer", "peer / ours"], listed), ""]


def behind(table: Table) -> Iterator[list[str]]:
    """Yield where a peer is ahead in a table, whose contestants are its rows or its columns."""
    title = re.split(r"[;.:]", table.title)[0]
    where = f"{table.section}: {title}" if table.section else title
    is_rate = "a second" in table.title and "/ ours" not in table.head
    for row in table.rows:
        case = ""
        for head, cell in zip(table.head, row, strict=True):
            ratio = number(cell)
            case = head.partition(",")[0] if "," in head else case
            if ratio is None or ratio >= 1:
                continue
            if row[0].startswith(PEERS) and head.startswith("/ ours"):
                yield [where, head.removeprefix("/ ours at ") if "at" in head else case, row[0], cell]
            elif head.startswith(("peer / ", "known / ")):
                yield [where, f"{row[0]} messages at {row[1]}, {head}", "LangChain", cell]
        ours = number(row[table.head.index(OURS)]) if OURS in table.head else None
        for head, cell in zip(table.head, row, strict=True) if ours else ():
            other = number(cell) if head.startswith(PEERS) else None
            if ours and other and (other > ours if is_rate else other < ours):
                yield [where, row[0], head, f"{other / ours:.2f} ×" + (" the rate" if is_rate else "")]


# The plots.


def plots(found: Found) -> dict[str, Canvas]:
    """Draw what the benches that were run measured."""
    drawn = dict[str, Canvas]()
    if table := table_of("windows", found, "One message added"):
        drawn["bench-windows"] = growth(found, table)
    if shown := surviving(found):
        drawn["bench-digest"] = bars("Windows of 4,000 tokens: facts that survive, %", shown)
    if table := table_of("sessions", found, "One client"):
        shown = {name: one for name, one in table.row("all").items() if "/" not in name and ":" not in name}
        shown.pop("raw", None)
        drawn["bench-append"] = bars("SQLite: one durable append, µs (less is better)", shown)
    if table := table_of("sessions", found, "Throughput"):
        rows = [row[0] for row in table.rows if "64" in row[0]] or [table.rows[0][0]]
        shown = {name: one for name, one in table.row(rows[0]).items() if "/" not in name}
        drawn["bench-throughput"] = bars(f"SQLite: {rows[0]}, appends a second (more is better)", shown)
    for section in dict.fromkeys(table.section for table in tables("servers", found)):
        name = "bench-" + "-".join(re.findall("[a-z]+", section.lower()))
        if table := table_of("servers", found, "64 clients", section):
            drawn[name] = bars(
                f"{section}: 64 clients, appends a second (more is better)", table.column(table.head[1])
            )
    if table := table_of("search", found, "First page"):
        drawn["bench-search"] = bars(
            "Search: first page, ms, logarithmic (less is better)", table.column("median"), log=True
        )
    return drawn


def surviving(found: Found) -> dict[str, float]:
    """Return the share of facts that survive in windows of 4,000 tokens, by contestant and conversations."""
    shown = dict[str, float]()
    for section in dict.fromkeys(table.section for table in tables("digest", found)):
        if (table := table_of("digest", found, "Facts", section)) and (
            most := re.search("of ([0-9.]+)", table.title)
        ):
            kept = table.column("4,000")
            shown |= {
                f"{way}, {section}": 100 * value / float(most[1].rstrip(".")) for way, value in kept.items()
            }
    return shown


def bars(label: str, shown: dict[str, float], *, log: bool = False) -> Canvas:
    """Draw a bar for each figure, ours in color; with `log`, a bar is as long as the logarithm."""
    canvas = Canvas(760, 56 + 28 * len(shown), label)
    canvas.text(24, 30, label, "title")
    most = max(shown.values(), default=1.0)
    least = min(shown.values(), default=1.0) / 2
    for place, (name, value) in enumerate(shown.items()):
        y = 48 + 28 * place
        share = math.log(value / least) / math.log(most / least) if log else value / most
        mine = name.startswith(OURS) or log
        canvas.text(24, y + 14, name[:38])
        canvas.box(350, y, round(max(2.0, 310 * share), 1), 18, "main" if mine else "summary")
        canvas.text(
            round(356 + 310 * share, 1), y + 14, f"{value:,.0f}" if value >= 100 else f"{value:,.3g}", "small"
        )
    return canvas


def growth(found: Found, added: Table) -> Canvas:
    """Draw how the time of a window grows with the conversation, on logarithmic axes."""
    label = "A window of 8,000 tokens, ms, by the length of the conversation"
    known = table_of("windows", found, "Counts known")
    series = {
        "trim_messages, counting": _by_size(added, "peer"),
        "trim_messages, counts known": _by_size(known, "peer, known"),
        "Turnstate, planned anew": _by_size(known, "planned"),
        "Turnstate, one message added": _by_size(added, "median"),
    }
    canvas = Canvas(760, 400, label)
    canvas.text(24, 30, label, "title")
    points = [value for line in series.values() for value in line.values()]
    low, high = (math.floor(math.log10(min(points))), math.ceil(math.log10(max(points))))
    sizes = sorted({size for line in series.values() for size in line})
    left, right, top, bottom = 90, 490, 60, 350

    def at(size: float, value: float) -> tuple[float, float]:
        along = (math.log10(size) - math.log10(sizes[0])) / (math.log10(sizes[-1] / sizes[0]) or 1)
        up = (math.log10(value) - low) / (high - low or 1)
        return round(left + along * (right - left), 1), round(bottom - up * (bottom - top), 1)

    for power in range(low, high + 1):
        y = at(sizes[0], 10.0**power)[1]
        canvas.path(f"M{left} {y}H{right}", "line faded")
        canvas.text(24, y + 4, f"{10.0**power:,g}", "small")
    for size in sizes:
        canvas.text(at(size, 10.0**low)[0], bottom + 22, f"{size:,.0f}", "on")
    for place, (name, line) in enumerate(series.items()):
        kind = "aside" if name.startswith("trim") else "main"
        spots = [at(size, value) for size, value in sorted(line.items())]
        if spots:
            canvas.path("M" + "L".join(f"{x} {y}" for x, y in spots))
        for x, y in spots:
            canvas.dot(x, y, kind if place % 2 else f"{kind} faded", radius=5)
        canvas.dot(516, 76 + 26 * place, kind if place % 2 else f"{kind} faded", radius=5)
        canvas.text(528, 80 + 26 * place, name, "small")
    return canvas


def _by_size(table: Table | None, column: str) -> dict[float, float]:
    """Return a column of the rows with a budget of 8,000 by the number of messages."""
    if table is None or column not in table.head:
        return {}
    place = table.head.index(column)
    found = {number(row[0]): number(row[place]) for row in table.rows if row[1] == "8,000"}
    return {size: value for size, value in found.items() if size and value}


if __name__ == "__main__":
    main()
