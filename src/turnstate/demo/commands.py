"""The commands of the demo, at work on a bundled conversation.

Every command line shown can be typed as it stands, and what follows it is what the program printed
just now: the real commands are run, and only what is shown of them is shortened.
"""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import wrap

from .. import formats
from ..cli import run
from ..cli_kit import screen
from . import screen as demo_screen
from .screen import COLUMNS

__all__ = ["tell"]

SOURCE = "openai-chat"
LANDMARK = "jobs/nightly_export.py"  # an argument of the first call, which each provider writes its own way
SUMMARY = "[Memory Summary]"
SMALL_BUDGET = 800  # about a third of the conversation
REMARK = "turnstate: "
MAX_LINES = 9
ABOVE = 4  # lines above a landmark: what a call is called, in every format


def tell() -> bool:
    """Run the commands and show them; tell whether each ended as it should."""
    good, broken = _bundled("demo.json"), _bundled("demo_broken.json")
    as_expected = [
        _step("What does it cost?", 0, "count", good),
        _step("Would the provider take it?", 0, "validate", good),
        _step("And after a careless cut?", 1, "validate", broken),
        _step(
            f"Make it fit {SMALL_BUDGET} tokens, and stay valid:",
            0,
            *("fit", "--budget", str(SMALL_BUDGET), good),
            landmark=SUMMARY,
            below=3,
        ),
    ]
    for name in formats.names():
        if name != SOURCE:
            line = ("convert", "--from", SOURCE, "--to", name, good)
            as_expected.append(
                _step(f"The same conversation for {name}, and what a call looks like there:", 0, *line)
            )
    return all(as_expected)


def _step(question: str, expected: int, *arguments: str, landmark: str = LANDMARK, below: int = 0) -> bool:
    """Run one command line and show it; tell whether it ended as it should."""
    output, code = _ran(arguments)
    demo_screen.quiet(f"# {question}")
    demo_screen.strong(_command_line(arguments))
    lines = output.splitlines()
    remarks = [line for line in lines if line.startswith(REMARK)]
    results = [line for line in lines if not line.startswith(REMARK)]
    for line in (*_shortened(results, landmark, below), *_wrapped(remarks)):
        demo_screen.line(line)
    if code:
        demo_screen.quiet(f"(exit code {code})")
    demo_screen.line("")
    return code == expected


def _command_line(arguments: tuple[str, ...]) -> str:
    """Write a command line as one would type it, broken before its last word where it is long."""
    *first, last = ("$ turnstate", *map(shlex.quote, arguments))
    line = " ".join(first)
    return f"{line} {last}" if len(line) + 1 + len(last) <= COLUMNS else f"{line} \\\n    {last}"


def _ran(arguments: tuple[str, ...]) -> tuple[str, int]:
    """Run a command line with its output caught, remarks and results in their order."""
    caught = io.BytesIO()
    with (
        io.TextIOWrapper(caught, encoding="utf-8") as stream,
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        code = run(arguments)
        return caught.getvalue().decode(), code


def _shortened(lines: list[str], landmark: str, below: int) -> list[str]:
    """Give what fits on the screen: all of it, or an excerpt around the landmark."""
    if len(lines) <= MAX_LINES:
        return _wrapped(lines)
    seen = next((index for index, line in enumerate(lines) if landmark in line), 0)
    start = max(0, seen - ABOVE)
    kept = lines[start : seen + below + 1]
    narrow = [part for line in kept for part in (_wrapped([line]) if landmark in line else _cut(line))]
    before, after = (screen.counted(n, "line") for n in (start, len(lines) - start - len(kept)))
    return [f"… {before}", *narrow, f"… {after}"]


def _cut(line: str) -> list[str]:
    return [line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"]


def _wrapped(lines: list[str]) -> list[str]:
    return [part for line in lines for part in wrap(line, COLUMNS, subsequent_indent="    ")]


def _bundled(name: str) -> str:
    """Give the path of a bundled file as one would type it here."""
    path = Path(__file__).parents[1] / name
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
