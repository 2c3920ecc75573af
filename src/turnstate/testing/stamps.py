"""Ids and times of generated messages: both follow from the position, neither from a clock.

A conversation is laid out as if somebody had said one thing every few seconds since a fixed start.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypedDict

from .. import ids

__all__ = ["Stamp", "stamp"]

_START = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)
_SECONDS_APART = 7


class Stamp(TypedDict):
    """What every message needs besides what it says."""

    id: str
    timestamp: str


def stamp(position: int, *content: bytes) -> Stamp:
    """Derive the id and the time of the message at this position."""
    moment = _START + timedelta(seconds=position * _SECONDS_APART)
    return {
        "id": ids.derived_id(position, *content),
        "timestamp": moment.isoformat().replace("+00:00", "Z"),
    }
