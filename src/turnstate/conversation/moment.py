"""Moments: what a strand showed behind each of its entries, so that another can begin there later.

A moment holds no copy: it says how far the lines reached, and what was newest.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..entry import Settings
from ..message import Message
from .history import HistoryEntry
from .line import Line
from .tracker import FileLineTracker

__all__ = ["Clearing", "Moment"]


class Clearing(Struct, frozen=True):
    """What a clearing took out of sight: a part of the history, and what was to be sent."""

    shown_from: int
    until: int
    pending: tuple[Message, ...]


class Moment(Struct, frozen=True, gc=False):
    """What a strand showed behind one entry: where its lines ended, and what was newest."""

    messages: int
    history: Line[HistoryEntry]
    exchanges: int
    last: HistoryEntry | None
    lines: Line[str]
    shown_lines: int
    decisions: int
    checkpoints: int
    pending: tuple[Message, ...]
    settings: Settings | None
    trackers: Mapping[str, FileLineTracker]
    prompt: str | None
    bootstrap: str | None
    clearings: Mapping[str, Clearing]
    shown_from: int
