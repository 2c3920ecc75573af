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
import os
import re
import sys

import click

from ..errors import TurnstateError

__all__ = [
    "abandon",
    "counted",
    "display",
    "escaped",
    "flush",
    "harmless",
    "located",
    "on_terminal",
    "say",
    "show",
    "styled",
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
