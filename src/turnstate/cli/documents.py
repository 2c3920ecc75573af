"""Iterates over the conversations of an input, and handles the fields of provider documents.

An error in a conversation gets a note with its place. It ends the walk, unless the user asked to keep
going through a JSONL: then it is reported and counted, and the next line follows.
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

MAX_LABEL_CHARS = 80


@dataclass(frozen=True)
class Conversation:
    """A provider's document, its place for error messages, and its line if the input is JSONL."""

    payload: Any
    where: str
    line: int | None

    @property
    def id(self) -> Any:
        """The document's own id, or None."""
        return self.payload.get("id") if isinstance(self.payload, dict) else None

    @property
    def label(self) -> str:
        """The line and id that identify the conversation in output for people."""
        named = isinstance(self.id, str | int) and self.id != ""
        return f"line {self.line}{screen.escaped(f' ({self.id})', MAX_LABEL_CHARS) if named else ''}"


@dataclass(frozen=True)
class Walk:
    """The result of a walk: whether the input was JSONL, and the number of good and bad conversations."""

    many: bool
    good: int
    bad: int


def walk(path: str | None, work: Callable[[Conversation], None], *, keep_going: bool) -> Walk:
    """Call `work` for every conversation of a file or of standard input."""
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


def size(payload: Any, provider: Format) -> int:
    """Return the number of messages in a document."""
    listed = payload.get(provider.list_key) if isinstance(payload, dict) else payload
    return len(listed) if isinstance(listed, list) else 0


def annotations_of(payload: Any, provider: Format) -> dict[str, Any]:
    """Return the fields of a document that the provider does not define."""
    if not isinstance(payload, dict):
        return {}
    known = provider.keys | provider.response_keys
    return {key: value for key, value in payload.items() if key not in known}


def unlabeled(payload: Any) -> Any:
    """Return a document without the `id` that identifies it within a file."""
    if not isinstance(payload, dict):
        return payload
    return {key: value for key, value in payload.items() if key != "id"}


def annotated(payload: Any, fields: dict[str, Any], provider: Format) -> Any:
    """Return a document with extra fields before its own, which take precedence."""
    if not fields:
        return payload
    return {**fields, **(payload if isinstance(payload, dict) else {provider.list_key: payload})}


def clashes(payload: Any, fields: dict[str, Any]) -> list[str]:
    """Return the names of extra fields that a field of the document has replaced."""
    return [key for key, value in fields.items() if payload[key] != value]


def compact(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def indented(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)
