"""Terminal output: results on stdout, messages on stderr, in order and without active escape sequences.

Pipes and files get UTF-8 regardless of the locale; a terminal gets its own encoding. Text from outside may
contain escape sequences. Documents (`show`) are written to a pipe unchanged; on a terminal, hidden characters
are written as JSON escapes, so JSON remains equivalent. Text for people is always made `harmless`,
since a pipe often ends at a terminal, and then printed (`display`). A message on stderr (`say`) also escapes
control characters and is always one line. Progress is shown there, too, if it is a terminal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from ..errors import TurnstateError
from ..plain_text import visible

MAX_MESSAGE_CHARS = 1_000
"""Length limit of a line on stderr: some ids and names in the wild are megabytes long."""

GAP = "  "
MAX_TABLE_WIDTH = 10_000
MAX_CELL_CHARS = 200
MIN_LAST_COLUMN = 8  # even if the terminal is too narrow

Advance = Callable[[int], None]
"""Takes the number of bytes of the conversation that was just finished."""

Step = Callable[[int, int], None]
"""Takes the position of the bar, and the number of items done."""

_BYTE_ESCAPES = range(
    0xDC80, 0xDD00
)  # surrogate escapes: how Python represents bytes of a file name that are not UTF-8

_SPACES = re.compile(r"[^\S ]")
"""White space other than the space itself, which a label of one line does not have."""

_captured: list[list[str]] = []
"""Stack of the texts that `paged` collects."""


def show(text: str) -> None:
    """Write one line or document of results unchanged; on a terminal, controls become JSON escapes."""
    display(visible(text, _as_json) if on_terminal() else text)


def display(text: str) -> None:
    """Write text that is already harmless and may contain our own styles."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if _captured:
        _captured[-1].append(text)
    elif on_terminal():
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(f"{text}\n".encode(encoding, "backslashreplace").decode(encoding))
    else:
        rest = memoryview(f"{text}\n".encode())
        while rest:  # an unbuffered stream may write only a part
            rest = rest[sys.stdout.buffer.write(rest) :]


def on_terminal() -> bool:
    """True if stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(text: str) -> None:
    """Write one line on stderr, after flushing the results before it."""
    try:
        flush()
    except OSError:
        abandon()
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"turnstate: {escaped(text)}\n")
            sys.stderr.flush()


def escaped(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Return text as one printable line: controls escaped, the middle of a long text cut out."""
    cut = visible(_ends(text, limit), _escaped_character)
    line = cut if cut.isprintable() else _SPACES.sub(lambda one: _escaped_character(one[0]), cut)
    return _ends(line, limit)  # again: an escape is longer than its character


def _ends(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def located(error: TurnstateError) -> str:
    """Return an error's text, prefixed with the places in its notes, outermost first."""
    return ": ".join([*reversed(getattr(error, "__notes__", [])), str(error)])


def flush() -> None:
    """Flush the results written so far."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Discard unwritten results, so that the interpreter does not try to flush them on exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _as_json(hidden: str) -> str:
    return json.dumps(hidden)[1:-1] if hidden != "\x7f" else "\\u007f"


def _escaped_character(character: str) -> str:
    if ord(character) in _BYTE_ESCAPES:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def styled(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return styled text if stdout is a terminal that supports it."""
    plain = not on_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not text else click.style(text, fg=fg, bold=bold, dim=dim)


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Show what the block displays in a pager, if stdout is a terminal and it does not fit on the screen.

    The pager is ``$PAGER``, else less; an empty ``$PAGER``, or ``cat``, turns it off.
    """
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not (on_terminal() and can_ask() and command and command != ["cat"] and shutil.which(command[0])):
        yield
        return
    lines = list[str]()
    _captured.append(lines)
    try:
        yield
    finally:
        _captured.remove(lines)
        _page(command, "\n".join(lines))


def _page(command: list[str], text: str) -> None:
    columns, rows = shutil.get_terminal_size()
    # Escape sequences and wide characters make this an estimate; an unneeded pager costs only a key press.
    if sum(1 + len(line) // columns for line in text.split("\n")) < rows:
        display(text)
        return
    import subprocess  # deferred: help does not need it

    environment = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    with contextlib.suppress(BrokenPipeError):  # the user quit before the end
        subprocess.run(command, input=f"{text}\n".encode(), env=environment, check=False)  # noqa: S603


def can_ask() -> bool:
    """True if stdin is a terminal, so that a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirmed(
    question: str, *, yes: bool, warning: str = "This cannot be undone", refused: str = "nothing was deleted"
) -> bool:
    """Ask for confirmation; without a terminal, raise unless --yes was given."""
    if yes:
        return True
    if not can_ask():
        raise click.UsageError("stdin is not a terminal; pass --yes to skip the confirmation")
    flush()
    answer = click.confirm(escaped(f"turnstate: {question} {warning}".rstrip()), err=True)
    if not answer:
        say(refused)
    return answer


class _StderrHandler(logging.Handler):
    """Writes each log record as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        say(record.getMessage())


def show_warnings() -> None:
    """Show the library's logged warnings on stderr; calling it again has no effect."""
    log = logging.getLogger("turnstate")
    if not any(isinstance(handler, _StderrHandler) for handler in log.handlers):
        log.addHandler(_StderrHandler(logging.WARNING))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Return rows laid out in columns, one line each; a narrow terminal cuts the last column."""
    from rich.cells import cell_len, chop_cells

    cells = [list(columns), *([escaped(cell, MAX_CELL_CHARS) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = shutil.get_terminal_size().columns if on_terminal() else MAX_TABLE_WIDTH
    widths[-1] = min(widths[-1], max(MIN_LAST_COLUMN, room - sum(widths[:-1]) - len(GAP) * len(widths[:-1])))

    def laid(row: Sequence[str]) -> str:
        return GAP.join(map(cell, row, columns, widths)).rstrip()

    def cell(text: str, column: str, width: int) -> str:
        if cell_len(text) > width:
            text = f"{chop_cells(text, width - 1)[0]}…"
        space = " " * (width - cell_len(text))
        return f"{space}{text}" if column in right else f"{text}{space}"

    heading, *lines = map(laid, cells)
    return "\n".join([styled(heading, bold=True), *lines])


@contextlib.contextmanager
def input_progress(size: int | None, *, many: bool) -> Iterator[Advance]:
    """Show progress through a JSONL input of ``size`` bytes, if known; show nothing for one document."""
    if not many:
        yield lambda _size: None
        return
    with metered("conversations", size) as step:
        far = done = 0

        def advance(size: int) -> None:
            nonlocal far, done
            far, done = far + size, done + 1
            step(far, done)

        yield advance


@contextlib.contextmanager
def metered(noun: str, total: int | None = None) -> Iterator[Step]:
    """Show a progress bar; call the yielded function after each step."""
    if not _shows_progress():
        yield lambda _far, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn(f"{{task.fields[done]:,}} {noun}"), TimeElapsedColumn())
    console = Console(stderr=True, soft_wrap=True)
    # Results on the same terminal must go through rich, or they break the bar; a pipe is left alone.
    redirect = on_terminal()
    with Progress(*columns, console=console, transient=True, redirect_stdout=redirect) as progress:
        task = progress.add_task("", total=total, done=0)
        yield lambda far, done: progress.update(task, completed=far, done=done)


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show a spinner with a text and the elapsed time while the block runs."""
    if not _shows_progress():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), transient=True) as progress:
        progress.add_task(escaped(text), total=None)
        yield


def _shows_progress() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
