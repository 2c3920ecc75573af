"""Helpers for the command functions: the error for wrong usage, and the parsing of arguments."""

from __future__ import annotations

import shlex

from ...errors import InputError

MAX_DIGITS = 9
"""Maximum digits of a number that a command accepts; nothing is numbered beyond that."""


class WrongUsage(InputError):
    """The command was written wrongly; the right usage is shown with this text."""


def words(rest: str) -> list[str]:
    """Split the arguments of a command as a shell would."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise WrongUsage(f"{error}".lower()) from None


def nothing(rest: str) -> None:
    """Raise `WrongUsage` if a command that takes no arguments got some."""
    if rest:
        raise WrongUsage("it takes no arguments")


def typed_number(text: str) -> int | None:
    """Parse a whole number; return None if the text is not one, or has too many digits."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None
