"""Reads and writes points in time: a date, a UTC time, or how long ago."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ..ids import wall_clock

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(\d{1,6})([smhdw])")
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60))
_RECENT_SECONDS = 60 * 86_400


def time_option(flag: str, text: str) -> Callable[[Decorated], Decorated]:
    """Return an option that takes a point in time and passes it on as milliseconds since 1970."""
    return click.option(flag, metavar="WHEN", callback=_read, help=text)


def iso(ms: int) -> str:
    """Return a time in ISO 8601, for programs."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # the year is out of range
        return f"{ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(ms: int) -> str:
    """Return how long ago a time was, or its date if it was more than 60 days ago."""
    seconds = (wall_clock() - ms) // 1000
    if not 0 <= seconds < _RECENT_SECONDS:
        return iso(ms)[:10]
    for unit, size in _STEPS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def _read(_ctx: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    if match := _AGO.fullmatch(given):
        return max(0, wall_clock() - int(match[1]) * _UNITS[match[2]] * 1000)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(
            f"{given!r:.40} is not a time: write 2025-06-30, 2025-06-30T12:00Z, 12h or 7d"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1000))
