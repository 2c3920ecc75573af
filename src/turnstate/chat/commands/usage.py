"""What the command functions share: the error for wrong usage, and how their words are read."""

from __future__ import annotations

import shlex

from ...errors import InputError

__all__ = ["WrongUsage", "nothing", "typed_number", "words"]

MAX_DIGITS = 9
"""Digits of a number that a command takes: there is nothing to count beyond."""


class WrongUsage(InputError):
    """The command was written wrongly; the right usage is shown with this text."""


def words(rest: str) -> list[str]:
    """Split what follows a command, as a shell would."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise WrongUsage(f"{error}".lower()) from None


def nothing(rest: str) -> None:
    """Raise `WrongUsage` if something follows a command that takes nothing."""
    if rest:
        raise WrongUsage("it takes nothing")


def typed_number(text: str) -> int | None:
    """Return a whole number as it was typed; None if it is none, or too long to number anything."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None
