"""Snapshots: a conversation as one JSON document, to continue from after a restart.

The keys are exactly those of the specification: version, timestamp, tokenCount, messages, and a
summary if there is one. Everything else goes under one key, ``extension``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from .. import codec, strict_json, wire_text
from ..errors import InvalidPayload, NewerFormat
from ..message import Message

VERSION: Literal["1.0"] = "1.0"

_VERSION = re.compile(r"[0-9]+\.[0-9]+")


class ContextSnapshot(Struct, frozen=True, kw_only=True):
    """The live queue of a conversation: preface, summary and kept messages, at one moment."""

    version: Literal["1.0"] = VERSION
    timestamp: int  # milliseconds
    token_count: int
    messages: tuple[Message, ...]
    summary: str | None = None
    extension: dict[str, Any] = {}

    def to_json(self) -> bytes:
        """Write the snapshot as UTF-8 JSON."""
        document: dict[str, Any] = {
            "version": self.version,
            "timestamp": self.timestamp,
            "tokenCount": self.token_count,
            "messages": [codec.to_builtins(message) for message in self.messages],
        }
        document |= {"summary": self.summary} if self.summary is not None else {}
        document |= {"extension": self.extension} if self.extension else {}
        return wire_text.json_text(document).encode()

    @classmethod
    def from_json(cls, data: bytes | str) -> ContextSnapshot:
        """Read a snapshot strictly; raise an error with the path to the fault if it is not a snapshot."""
        document = strict_json.read(data)
        if not isinstance(document, dict):
            raise InvalidPayload("a snapshot is an object", path="$")
        version = _typed(document, "version", str)
        if not _VERSION.fullmatch(version):
            raise InvalidPayload(f"version {version!r:.40} is not of the form {VERSION!r}", path="$.version")
        if version != VERSION:
            raise NewerFormat(f"snapshot version {version!r:.40} is not {VERSION!r}", path="$.version")
        messages = _typed(document, "messages", list)
        return cls(
            timestamp=_typed(document, "timestamp", int),
            token_count=_typed(document, "tokenCount", int),
            messages=tuple(codec.from_builtins(one, at=f"$.messages[{i}]") for i, one in enumerate(messages)),
            summary=_typed(document, "summary", str, optional=True),
            extension=_typed(document, "extension", dict, optional=True) or {},
        )


def snapshot(messages: Sequence[Message], *, tokens: int, timestamp: int) -> ContextSnapshot:
    """Take a snapshot of a live queue; its summary is recognized by its kind."""
    summaries = [message.text for message in messages if message.kind == "summary"]
    summary = summaries[-1] if summaries else None
    return ContextSnapshot(timestamp=timestamp, token_count=tokens, messages=tuple(messages), summary=summary)


def _typed(document: dict[str, Any], key: str, kind: type, *, optional: bool = False) -> Any:
    value = document.get(key)
    if optional and value is None:
        return None
    if type(value) is not kind:
        raise InvalidPayload(f"{key} is {kind.__name__}, not {type(value).__name__}", path=f"$.{key}")
    return value
