"""Provider documents as the commands handle them: their messages, their annotations, their text.

An object may carry fields that are no part of the provider's request, like the ``id`` of a line
of JSONL. They are annotations: they travel with the conversation, whatever format it takes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..formats.port import Format

__all__ = ["annotated", "annotations_of", "clashes", "compact", "indented", "size", "unlabeled"]


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
