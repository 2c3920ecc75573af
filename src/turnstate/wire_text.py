"""Values as the text that a model reads.

Arguments and structured results are sent as compact JSON in their original order. A result that is
a list of content parts (under our names, or under those of MCP servers) is sent as parts. Media that
a provider does not accept becomes a line that describes it. Counting and rendering share these
functions, so what is counted is what is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from . import long_json
from .message import ToolCallRequest
from .part import FilePart, ImagePart, Part, TextPart

SILENCE = "[empty]"
"""Replaces empty text where a provider requires some."""

_MCP_NAMES = {"mimeType": "media_type"}
_MCP_ASIDES = ("annotations", "_meta")
_RESULT_PARTS = tuple[TextPart | ImagePart | FilePart, ...]


def json_text(value: Any) -> str:
    """Write a JSON value as compact text."""
    return long_json.encode(value).decode()


def args_text(call: ToolCallRequest) -> str:
    """Write the arguments of a call as the model reads them; invalid ones are its own text, unchanged."""
    return json_text(call.args) if call.raw is None else call.raw


def result_text(result: Any) -> str:
    """Write a tool result as the text that the model reads."""
    if isinstance(result, str):
        return result
    if parts := result_parts(result):
        return "\n".join(part.text if isinstance(part, TextPart) else described(part) for part in parts)
    return json_text(result)


def result_parts(result: Any) -> tuple[TextPart | ImagePart | FilePart, ...] | None:
    """Return a result as content parts if it is a non-empty list of them, otherwise None."""
    if not isinstance(result, list | tuple) or not result or not all(map(_looks_like_part, result)):
        return None
    try:
        return msgspec.convert([_in_our_names(item) for item in result], _RESULT_PARTS)
    except msgspec.ValidationError:
        return None


def result_of_parts(parts: Iterable[Part]) -> list[Any]:
    """Write content parts as a result that `result_parts` reads."""
    return [msgspec.to_builtins(part) for part in parts]


def described(part: Part) -> str:
    """Describe a part in one line, for a reader that cannot get the part itself."""
    match part:
        case ImagePart():
            return f"[image {_source(part)}]"
        case FilePart():
            return f"[file {_source(part)}]"
        case _:
            return part.text


def notice(text: str) -> str:
    """Write a system message as user text, for a provider that accepts none between turns."""
    return f"[System message] {text}"


def _source(part: ImagePart | FilePart) -> str:
    if part.data is not None:
        digest = hashlib.sha256(part.data).hexdigest()[:16]
        return f"{part.media_type or 'application/octet-stream'}, {len(part.data)} bytes, sha256 {digest}"
    if part.url is None:
        return f"id {part.file_id}"
    return part.url.partition(",")[0] if part.url.startswith("data:") else part.url


def _looks_like_part(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in ("text", "image", "audio", "file")


def _in_our_names(item: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields that MCP names differently, and drop those that are only for the client."""
    part = {_MCP_NAMES.get(key, key): value for key, value in item.items() if key not in _MCP_ASIDES}
    return {**part, "type": "file"} if part["type"] == "audio" else part
