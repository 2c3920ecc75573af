"""What the user sees: results on stdout, remarks on stderr, in order and harmless.

Pipes and files get UTF-8 whatever the locale says; a terminal gets its own encoding. Text that
came from outside may hold escape sequences. Documents (`show`) reach a pipe byte for byte; on a
terminal, characters that it would act on are written as JSON escapes, so JSON stays the same JSON.
Text for people is made `harmless` wherever it goes, since a pipe often ends at a terminal, and then
printed (`display`). A remark spells out every such character, too, and stays one line.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from ..errors import TurnstateError

__all__ = [
    "abandon",
    "agreed",
    "counted",
    "display",
    "escaped",
    "flush",
    "harmless",
    "hear",
    "located",
    "on_terminal",
    "say",
    "show",
    "styled",
    "table",
    "yes_option",
]

MAX_REMARK = 1_000
"""Characters of a remark: some ids and names in the wild are megabytes long."""

_BYTE_ESCAPES = range(0xDC80, 0xDD00)  # how Python spells the bytes of a name that is not UTF-8

# What a terminal acts on: C0 and C1 controls, DEL, marks that reorder or hide text. Tabs and line ends are
# part of a text; joiners (U+200C, U+200D) are part of words and emoji.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]|\r(?!\n)"
)


def show(text: str) -> None:
    """Write one line, or one document, of results as it is; on a terminal, with controls as JSON escapes."""
    display(_CONTROLS.sub(_as_json, text) if on_terminal() else text)


def harmless(text: str) -> str:
    """Spell out the characters that a terminal would act on."""
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


def display(text: str) -> None:
    """Write text that is harmless already, and may hold styles of our own."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if on_terminal():
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
    else:
        rest = memoryview(f"{text}\n".encode())
        while rest:  # an unbuffered stream may take a part, and say so only by the count
            rest = rest[sys.stdout.buffer.write(rest) :]


def on_terminal() -> bool:
    """Tell whether a person reads the results as they come."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(text: str) -> None:
    """Make one remark on stderr, after the results that precede it."""
    try:
        flush()
    except OSError:
        abandon()
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"turnstate: {escaped(text)}\n")
            sys.stderr.flush()


def escaped(text: str, limit: int = MAX_REMARK) -> str:
    """Spell out what a terminal would act on or cannot show; cut the middle of what is too long."""
    half = limit // 2
    cut = text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"
    return cut if cut.isprintable() else "".join(map(_spelled, cut))


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def located(error: TurnstateError) -> str:
    """Give an error's text after the places that were noted on it, the outermost first."""
    return ": ".join([*reversed(getattr(error, "__notes__", [])), str(error)])


def flush() -> None:
    """Send out the results written so far."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Drop the results that nobody takes, so that leaving does not try to send them again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _as_json(control: re.Match[str]) -> str:
    return json.dumps(control[0])[1:-1] if control[0] != "\x7f" else "\\u007f"


def _spelled(character: str) -> str:
    if character.isprintable():
        return character
    if ord(character) in _BYTE_ESCAPES:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def styled(text: str, **style: bool) -> str:
    """Make text stand out where a terminal can do that."""
    plain = not on_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **style)


# Consent: what cannot be taken back is asked for first, and nobody is surprised.


Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def yes_option(command: Decorated) -> Decorated:
    """Add the switch that goes ahead without a question."""
    text = "Do not ask; needed where there is nobody to ask."
    return click.option("--yes", is_flag=True, help=text)(command)


def agreed(question: str, *, yes: bool) -> bool:
    """Ask the person at the terminal; where there is none, only --yes will do."""
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked; --yes deletes without asking")
    flush()
    agreed = click.confirm(escaped(f"turnstate: {question} There is no way back"), err=True)
    if not agreed:
        say("nothing was deleted")
    return agreed


# Warnings of the library, for people: what it logs is told on stderr like every other remark.


class _Remarks(logging.Handler):
    """A log whose reader sits at the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record in one line."""
        say(record.getMessage())


def hear() -> None:
    """Listen to the library's warnings; listening twice is listening once."""
    log = logging.getLogger("turnstate")
    if not any(isinstance(handler, _Remarks) for handler in log.handlers):
        log.addHandler(_Remarks(logging.WARNING))


# A table for people: as wide as their terminal, or as wide as it is where a program reads it.


GAP = "  "
WIDEST = 10_000
LONGEST_CELL = 200
NARROWEST = 8  # of the last column, in a terminal that has no room for it


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Lay rows out in columns, one line each; where a terminal is too narrow, the last column is cut."""
    from rich.cells import cell_len, chop_cells

    cells = [list(columns), *([escaped(cell, LONGEST_CELL) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = shutil.get_terminal_size().columns if on_terminal() else WIDEST
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
