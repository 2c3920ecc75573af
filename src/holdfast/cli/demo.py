"""``holdfast demo``: a session that survives a kill, and the commands at work on a conversation.

Every command line shown can be typed as it stands, and what follows it is what the program printed
just now: the demo runs the real commands, and shortens only what it shows.
"""

from __future__ import annotations

import io
import os
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from textwrap import wrap

import click

from .. import formats
from .._version import __version__
from . import options, run, screen

__all__ = ["command"]

SOURCE = "openai-chat"
LANDMARK = "jobs/nightly_export.py"  # an argument of the first call, which each provider writes its own way
SUMMARY = "[Memory Summary]"
SMALL_BUDGET = 800  # about a third of the conversation
REMARK = "holdfast: "
MAX_LINES = 9
MAX_COLUMNS = 80

NEXT = """\
holdfast validate FILE           your own conversations: one document, or JSONL
holdfast fit --budget 8000 FILE  as much of them as a budget takes, still valid
holdfast convert --help          from any of the five providers to any other
holdfast count --json FILE       the same numbers, for your scripts"""


@click.command("demo", epilog=options.EXIT_CODES)
def command() -> int:
    """Watch a session survive a kill, and the commands at work on a conversation.

    It needs no input, no key and no network, and leaves nothing behind. Each command line that
    it shows can be typed as it stands.

    \b
    Example:
      holdfast demo
    """
    from . import demo_story  # only now: help does not need it

    good, broken = _bundled("demo.json"), _bundled("demo_broken.json")
    _tell(f"Holdfast {__version__}: a session that survives a kill", bold=True)
    as_expected = [demo_story.tell()]
    _tell("\nWithout a session: the commands, on a coding agent's conversation", bold=True)
    screen.show("")
    as_expected += [
        _step("What does it cost?", 0, "count", good),
        _step("Would the provider take it?", 0, "validate", good),
        _step("And after a careless cut?", 1, "validate", broken),
        _step(
            f"Make it fit {SMALL_BUDGET} tokens, and stay valid:",
            0,
            *("fit", "--budget", str(SMALL_BUDGET), good),
            landmark=SUMMARY,
        ),
    ]
    for name in formats.names():
        if name != SOURCE:
            line = ("convert", "--from", SOURCE, "--to", name, good)
            as_expected.append(
                _step(f"The same conversation for {name}, and what a call looks like there:", 0, *line)
            )
    _tell("What to try next:", bold=True)
    screen.show(NEXT)
    return 0 if all(as_expected) else 1


def _step(question: str, expected: int, *arguments: str, landmark: str = LANDMARK) -> bool:
    """Run one command line and show it; tell whether it ended as it should."""
    output, code = _ran(arguments)
    _tell(f"# {question}", dim=True)
    _tell(_command_line(arguments), bold=True)
    lines = output.splitlines()
    remarks = [line for line in lines if line.startswith(REMARK)]
    results = [line for line in lines if not line.startswith(REMARK)]
    for line in (*_shortened(results, landmark), *_wrapped(remarks)):
        screen.show(line)
    if code:
        _tell(f"(exit code {code})", dim=True)
    screen.show("")
    return code == expected


def _command_line(arguments: tuple[str, ...]) -> str:
    """Write a command line as one would type it, broken before its last word where it is long."""
    *first, last = ("$ holdfast", *map(shlex.quote, arguments))
    line = " ".join(first)
    return f"{line} {last}" if len(line) + 1 + len(last) <= MAX_COLUMNS else f"{line} \\\n    {last}"


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


def _shortened(lines: list[str], landmark: str) -> list[str]:
    """Give what fits on the screen: all of it, or an excerpt around the landmark."""
    if len(lines) <= MAX_LINES:
        return _wrapped(lines)
    seen = next((index for index, line in enumerate(lines) if landmark in line), 0)
    start = max(0, seen - MAX_LINES // 2 - 1)
    kept = lines[start : start + MAX_LINES]
    narrow = [part for line in kept for part in (_wrapped([line]) if landmark in line else _cut(line))]
    before, after = (screen.counted(n, "line") for n in (start, len(lines) - start - len(kept)))
    return [f"… {before}", *narrow, f"… {after}"]


def _cut(line: str) -> list[str]:
    return [line if len(line) <= MAX_COLUMNS else f"{line[: MAX_COLUMNS - 1]}…"]


def _wrapped(lines: list[str]) -> list[str]:
    return [part for line in lines for part in wrap(line, MAX_COLUMNS, subsequent_indent="    ")]


def _bundled(name: str) -> str:
    """Give the path of a bundled file as one would type it here."""
    path = Path(__file__).parents[1] / name
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _tell(text: str, **style: bool) -> None:
    wanted = screen.on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    screen.show(click.style(text, **style) if wanted else text)
