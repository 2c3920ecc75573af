"""Consent: what cannot be taken back is asked for first, and nobody is surprised."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from . import screen

__all__ = ["agreed", "yes_option"]

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
    screen.flush()
    agreed = click.confirm(screen.escaped(f"turnstate: {question} There is no way back"), err=True)
    if not agreed:
        screen.say("nothing was deleted")
    return agreed
