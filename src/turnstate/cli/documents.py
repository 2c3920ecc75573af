"""The walk that every command takes: each conversation of the input, once, in order.

A fault in a conversation is noted with the place where it stands. It ends the walk, unless the
user asked to keep going through a JSONL: then it is told, counted, and the next line is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cli_kit import progress, screen
from ..errors import TurnstateError
from .source import Document, opened

if TYPE_CHECKING:
    from ..formats.port import Format

__all__ = [
    "Conversation",
    "Walk",
    "annotated",
    "annotations_of",
    "clashes",
    "compact",
    "indented",
    "size",
    "unlabeled",
    "walk",
]

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
    with opened(path) as source, progress.shown(source.size, many=source.many) as advance:
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


# Provider documents as the commands handle them: their messages, their annotations, their text.


def size(payload: Any, provider: Format) -> int:
    """Count the provider's messages in a document."""
    listed = payload.get(provider.list_key) if isinstance(payload, dict) else payload
    return len(listed) if isinstance(listed, list) else 0


def annotations_of(payload: Any, provider: Format) -> dict[str, Any]:
    """Return the fields of a document that are none of the provider's."""
    if not isinstance(payload, dict):
        return {}
    known = provider.keys | provider.response_keys
    return {key: value for key, value in payload.items() if key not in known}


def unlabeled(payload: Any) -> Any:
    """Return a document without the `id` by which a file tells its conversations apart."""
    if not isinstance(payload, dict):
        return payload
    return {key: value for key, value in payload.items() if key != "id"}


def annotated(payload: Any, fields: dict[str, Any], provider: Format) -> Any:
    """Put annotations on a document, before its own fields, which win."""
    if not fields:
        return payload
    return {**fields, **(payload if isinstance(payload, dict) else {provider.list_key: payload})}


def clashes(payload: Any, fields: dict[str, Any]) -> list[str]:
    """Name the annotations in whose place a document has a field of its own."""
    return [key for key, value in fields.items() if payload[key] != value]


def compact(value: Any) -> str:
    """Write JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def indented(value: Any) -> str:
    """Write JSON for people."""
    return json.dumps(value, ensure_ascii=False, indent=2)
