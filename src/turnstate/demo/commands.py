"""The demo's commands section: the real commands, run on a bundled conversation.

Every command line can be typed as shown, and is followed by the actual output of the program, shortened to
fit the screen.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import wrap

from .. import formats
from ..plain_text import counted
from . import screen as demo_screen
from .screen import COLUMNS

Run = Callable[[Sequence[str]], int]
"""Runs one command line and returns its exit code."""

SOURCE = "openai-chat"
LANDMARK = "jobs/nightly_export.py"  # an argument of the first call, which each provider writes differently
SUMMARY = "[Memory Summary]"
SMALL_BUDGET = 800  # about a third of the conversation
STDERR_PREFIX = "turnstate: "
MAX_LINES = 9
ABOVE = 4  # lines above a landmark: they contain the name of the call in every format


def play(run: Run) -> bool:
    """Run the commands and show their output; return True if each exited as expected."""
    good, broken = _bundled("demo.json"), _bundled("demo_broken.json")
    as_expected = [
        _step(run, "What does it cost?", 0, "count", good),
        _step(run, "Would the provider accept it?", 0, "validate", good),
        _step(run, "And after a careless cut?", 1, "validate", broken),
        _step(
            run,
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
                _step(run, f"The same conversation for {name}, and what a call looks like there:", 0, *line)
            )
    return all(as_expected)


def _step(
    run: Run, question: str, expected: int, *arguments: str, landmark: str = LANDMARK, below: int = 0
) -> bool:
    """Run one command line and show it; return True if it exited as expected."""
    output, code = _captured(run, arguments)
    demo_screen.quiet(f"# {question}")
    demo_screen.strong(_command_line(arguments))
    lines = output.splitlines()
    remarks = [line for line in lines if line.startswith(STDERR_PREFIX)]
    results = [line for line in lines if not line.startswith(STDERR_PREFIX)]
    for line in (*_shortened(results, landmark, below), *_wrapped(remarks)):
        demo_screen.line(line)
    if code:
        demo_screen.quiet(f"(exit code {code})")
    demo_screen.line("")
    return code == expected


def _command_line(arguments: tuple[str, ...]) -> str:
    """Return a command line as a user would type it, broken before its last word if it is long."""
    *first, last = ("$ turnstate", *map(shlex.quote, arguments))
    line = " ".join(first)
    return f"{line} {last}" if len(line) + 1 + len(last) <= COLUMNS else f"{line} \\\n    {last}"


def _captured(run: Run, arguments: tuple[str, ...]) -> tuple[str, int]:
    """Run a command line and return its output, both streams in order, and its exit code."""
    caught = io.BytesIO()
    with (
        io.TextIOWrapper(caught, encoding="utf-8") as stream,
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        code = run(arguments)
        return caught.getvalue().decode(), code


def _shortened(lines: list[str], landmark: str, below: int) -> list[str]:
    """Return all lines if they fit on the screen, or else an excerpt around the landmark."""
    if len(lines) <= MAX_LINES:
        return _wrapped(lines)
    seen = next((index for index, line in enumerate(lines) if landmark in line), 0)
    start = max(0, seen - ABOVE)
    kept = lines[start : seen + below + 1]
    narrow = [part for line in kept for part in (_wrapped([line]) if landmark in line else _cut(line))]
    before, after = (counted(n, "line") for n in (start, len(lines) - start - len(kept)))
    return [f"… {before}", *narrow, f"… {after}"]


def _cut(line: str) -> list[str]:
    return [line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"]


def _wrapped(lines: list[str]) -> list[str]:
    return [part for line in lines for part in wrap(line, COLUMNS, subsequent_indent="    ")]


def _bundled(name: str) -> str:
    """Return the path of a bundled file as a user would type it in the current folder."""
    path = Path(__file__).parents[1] / name
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
