"""Moments as people write and read them: a date, a time in UTC, or how long ago."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

__all__ = ["ago", "iso", "moment_option"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60))
_RECENT = 60 * 86_400


def moment_option(flag: str, text: str) -> Callable[[Decorated], Decorated]:
    """Make an option that takes a moment and gives its milliseconds."""
    return click.option(flag, metavar="WHEN", callback=_read, help=text)


def iso(ms: int) -> str:
    """Write a moment for programs."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a year beyond the calendar
        return f"{ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(ms: int) -> str:
    """Write a moment for people: how long ago, or the day where that is long."""
    seconds = (_now() - ms) // 1000
    if not 0 <= seconds < _RECENT:
        return iso(ms)[:10]
    for unit, size in _STEPS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def _read(_ctx: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    if match := _AGO.fullmatch(given):
        return max(0, _now() - int(match[1]) * _UNITS[match[2]] * 1000)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(
            f"{given!r:.40} is no moment: write 2025-06-30, 2025-06-30T12:00Z, 12h or 7d"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1000))


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
