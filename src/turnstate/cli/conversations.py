"""The walk that every command takes: each conversation of the input, once, in order.

A fault in a conversation is noted with the place where it stands. It ends the walk, unless the
user asked to keep going through a JSONL: then it is told, counted, and the next line is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import TurnstateError
from . import progress, screen
from .source import Document, opened

__all__ = ["Conversation", "Walk", "walk"]

LONGEST_LABEL = 80


@dataclass(frozen=True)
class Conversation:
    """A provider's document, where it stood, and on which line of a JSONL, if it was one of many."""

    payload: Any
    where: str
    line: int | None

    @property
    def id(self) -> Any:
        """What the document calls itself, if anything."""
        return self.payload.get("id") if isinstance(self.payload, dict) else None

    @property
    def label(self) -> str:
        """The place among many by which people are told about it."""
        named = isinstance(self.id, str | int) and self.id != ""
        return f"line {self.line}{screen.escaped(f' ({self.id})', LONGEST_LABEL) if named else ''}"


@dataclass(frozen=True)
class Walk:
    """How a walk went: whether the input was a JSONL, how many were walked, how many were bad."""

    many: bool
    good: int
    bad: int


def walk(path: str | None, work: Callable[[Conversation], None], *, keep_going: bool) -> Walk:
    """Do the work for every conversation of a file or of standard input."""
    good = bad = 0
    with opened(path) as source, progress.shown(source) as advance:
        for document in source.documents:
            try:
                _step(document, work)
                good += 1
            except TurnstateError as error:
                if not (keep_going and source.many):
                    raise
                screen.say(screen.located(error))
                bad += 1
            advance(len(document.data))
    return Walk(source.many, good, bad)


def _step(document: Document, work: Callable[[Conversation], None]) -> None:
    try:
        work(Conversation(document.value(), document.where, document.line))
    except TurnstateError as error:
        error.add_note(document.where)
        raise
