"""Tool results: the original's list of blocks, text or JSON, as one JSON value and back.

One block of text is text, one of JSON is its value. Whatever is not told by the value alone stands beside
it as ``blocks``: several of them, none, or text that came as JSON. Several blocks of text are content
parts, so that a model reads them as text.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ...ids import CallId
from ...message import ToolCallResult
from ...value import Extra

__all__ = ["read", "written"]

BLOCKS = "blocks"
JSON, TEXT = "Json", "Text"


def read(document: dict[str, Any], call: CallId) -> ToolCallResult:
    """Read a result as one of this call."""
    kinds = [next(iter(block)) for block in document["content"]]
    values = [next(iter(block.values())) for block in document["content"]]
    value = values[0] if len(values) == 1 else _several(kinds, values)
    return ToolCallResult(
        tool_call_id=call,
        result=value,
        is_error=document["status"] == "Error",
        extra=UNSET if len(kinds) == 1 and kinds == _natural(value) else Extra({BLOCKS: kinds}),
    )


def written(result: ToolCallResult, id: str) -> dict[str, Any]:
    """Write a result under the id that the original has for its call."""
    return {
        "tool_use_id": id,
        "content": _content(result),
        "status": "Error" if result.is_error else "Success",
    }


def _content(result: ToolCallResult) -> list[dict[str, Any]]:
    kinds = _kinds(result)
    if len(kinds) == 1:
        return [{kinds[0]: result.result}]
    in_parts = all(kind == TEXT for kind in kinds)
    values = [item["text"] if in_parts else item for item in result.result]
    return [{kind: value} for kind, value in zip(kinds, values, strict=True)]


def _kinds(result: ToolCallResult) -> list[str]:
    """Give the blocks that a result came in, as far as it can be told, or those that suit its value."""
    natural = _natural(result.result)
    kinds = result.extra.get(BLOCKS) if isinstance(result.extra, Extra) else None
    if not isinstance(kinds, list) or not all(kind in (JSON, TEXT) for kind in kinds):
        return natural
    if len(kinds) == 1:
        return kinds if kinds[0] == JSON else natural
    values = result.result
    if not isinstance(values, list) or len(values) != len(kinds):
        return natural
    in_parts = all(kind == TEXT for kind in kinds)
    sound = all(_fits(value, kind, in_parts) for value, kind in zip(values, kinds, strict=True))
    return kinds if sound else natural


def _fits(value: Any, kind: str, in_parts: bool) -> bool:
    if in_parts:
        return isinstance(value, dict) and isinstance(value.get("text"), str)
    return kind == JSON or isinstance(value, str)


def _several(kinds: list[str], values: list[Any]) -> list[Any]:
    if all(kind == TEXT for kind in kinds):
        return [{"type": "text", "text": value} for value in values]
    return values


def _natural(value: Any) -> list[str]:
    return [TEXT if isinstance(value, str) else JSON]
