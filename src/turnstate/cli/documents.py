"""Iterates over the conversations of an input, and handles the fields of provider documents.

An error in a conversation gets a note with its place. It ends the walk, unless the user asked to keep going
through a JSONL file: then the error is reported and counted, and the walk continues with the next line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError, TurnstateError
from ..terminal import screen
from .source import SourceDocument, opened

if TYPE_CHECKING:
    from ..formats.port import Format

MAX_LABEL_CHARS = 80
STDIN_PATH = "-"
DEFAULT = "openai-chat"
"""The format that is assumed if nothing in a document indicates another."""


@dataclass(frozen=True)
class Conversation:
    """A provider's document, its place for error messages, and its line if the input is JSONL.

    `many` is True if it is one of several; `file` is set if there are several files.
    """

    payload: Any
    where: str
    line: int | None
    many: bool = False
    file: str | None = None

    @property
    def id(self) -> Any:
        """The document's own id, or None."""
        return self.payload.get("id") if isinstance(self.payload, dict) else None

    @property
    def label(self) -> str:
        """The line and id that identify the conversation in output for people."""
        named = isinstance(self.id, str | int) and self.id != ""
        place = f"line {self.line}" if self.file is None else screen.escaped(self.where, MAX_LABEL_CHARS)
        return f"{place}{screen.escaped(f' ({self.id})', MAX_LABEL_CHARS) if named else ''}"

    @property
    def place(self) -> dict[str, Any]:
        """The fields that identify the conversation in JSON output."""
        file = {"file": self.file} if self.file is not None else {}
        return {"id": self.id, **file, "line": self.line}


@dataclass(frozen=True)
class DocumentWalk:
    """The result of a walk: whether there were many, and the number of good and bad conversations."""

    many: bool
    good: int
    bad: int


def walk(
    paths: Sequence[str],
    provider: Format,
    work: Callable[[Conversation], None],
    *,
    keep_going: bool,
    flag: str = "--format",
) -> DocumentWalk:
    """Call `work` for every conversation in the files, or in standard input.

    `flag` is the option that named the provider's format; the advice to use another format mentions it.
    """
    good = bad = 0
    several, hint = len(paths) > 1, _Hint(provider, flag)
    many = several
    for path in paths or (STDIN_PATH,):
        with opened(path) as source, screen.input_progress(source.size, many=source.many) as advance:
            many = many or source.many
            for document in source.documents:
                try:
                    _step(document, provider, work, hint, many=many, several=several)
                    good += 1
                except TurnstateError as error:
                    if not (keep_going and many):
                        raise
                    screen.say(screen.located(error))
                    bad += 1
                advance(len(document.data))
    return DocumentWalk(many, good, bad)


def payload_of(document: SourceDocument, provider: Format) -> Any:
    """Return a conversation as the provider's document; render it if Turnstate stored it."""
    return provider.rendering(document.stored()).document if document.layout == "stored" else document.value()


def _step(
    document: SourceDocument,
    provider: Format,
    work: Callable[[Conversation], None],
    hint: _Hint,
    *,
    many: bool,
    several: bool,
) -> None:
    payload = None
    try:
        payload = payload_of(document, provider)
        file = document.name if several else None
        work(Conversation(payload, document.where, document.line, many, file))
    except InputError as error:
        if advice := hint.advice(payload):
            error.add_note(f"{document.where} ({advice})")
        else:
            error.add_note(document.where)
        raise
    except TurnstateError as error:
        error.add_note(document.where)
        raise
    hint.remark(payload, document.where)


class _Hint:
    """Recognizes a document in another format than the named one, and says so once."""

    def __init__(self, provider: Format, flag: str) -> None:
        self._provider, self._flag, self._said = provider, flag, False

    def advice(self, payload: Any) -> str:
        """Return the advice to name another format; an empty string if the named one may be right."""
        from .. import formats  # deferred: help does not need it

        if not isinstance(payload, list | dict):
            return ""
        likely = formats.detect(payload)
        if likely.name == self._provider.name or likely.validate(payload):
            return ""
        if likely.name == DEFAULT and not self._provider.validate(payload):
            return ""  # plain text is valid in several formats, and detected as the default
        return f"it looks like {likely.name}: pass {self._flag} {likely.name}"

    def remark(self, payload: Any, where: str) -> None:
        """Say once that a document looks like another format although it could be read."""
        if not self._said and (advice := self.advice(payload)):
            self._said = True
            screen.say(f"{where}: note: {advice}")


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
    """Return a document with extra fields before its own; its own fields take precedence."""
    if not fields:
        return payload
    return {**fields, **(payload if isinstance(payload, dict) else {provider.list_key: payload})}


def clashes(payload: Any, fields: dict[str, Any]) -> list[str]:
    """Return the names of extra fields that a field of the document overrides."""
    return [key for key, value in fields.items() if payload[key] != value]


def compact(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def indented(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)
