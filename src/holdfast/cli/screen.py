"""What the user sees: results on stdout, remarks on stderr, in order and harmless.

Pipes and files get UTF-8 whatever the locale says; a terminal gets its own encoding. Text that
came from outside may hold escape sequences, so a remark spells out every character that a
terminal would act on, and stays one line.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ..errors import HoldfastError

__all__ = ["abandon", "counted", "escaped", "flush", "located", "on_terminal", "say", "show"]

MAX_REMARK = 1_000
"""Characters of a remark: some ids and names in the wild are megabytes long."""

_BYTE_ESCAPES = range(0xDC80, 0xDD00)  # how Python spells the bytes of a name that is not UTF-8


def show(text: str) -> None:
    """Write one line, or one document, of results."""
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
            sys.stderr.write(f"holdfast: {escaped(text)}\n")
            sys.stderr.flush()


def escaped(text: str, limit: int = MAX_REMARK) -> str:
    """Spell out what a terminal would act on or cannot show; cut the middle of what is too long."""
    half = limit // 2
    cut = text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"
    return cut if cut.isprintable() else "".join(map(_spelled, cut))


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def located(error: HoldfastError) -> str:
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


def _spelled(character: str) -> str:
    if character.isprintable():
        return character
    if ord(character) in _BYTE_ESCAPES:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
