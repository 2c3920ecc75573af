"""The items of OpenAI Responses, read into drafts: the assistant's in runs, any other by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ..errors import InvalidPayload
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from . import arguments, media
from .draft import Call, Draft, Result, result_of_blocks
from .wire import expect, text_or_none

__all__ = ["FORMAT", "STORED", "drafts"]

FORMAT = "openai-responses"

STORED = "rs_"
"""How the id of reasoning begins that the service keeps for us: such an id is as good as a signature."""


class _MessageItem(Struct):
    role: str
    content: str | list[dict[str, Any]]


class _CallItem(Struct):
    call_id: str = ""
    name: str = ""
    arguments: Any = ""


class _OutputItem(Struct):
    call_id: str = ""
    output: Any = ""


def drafts(items: list[Any]) -> Iterator[Draft]:
    """Read items in order."""
    run = _Run()
    for index, item in enumerate(items):
        path = f"$.input[{index}]"
        other = _draft(expect(item, dict[str, Any], path), path)
        if other or not run.continues(item):
            yield from run.draft()
            run = _Run()
        if other:
            yield other
        else:
            run.add(item, path)
    yield from run.draft()


class _Run:
    """The items of one assistant message, as long as they stand in the order in which we write."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._parts: list[Part] = []
        self._said: str | None = None
        self._spoken = False
        self._calls: list[Call] = []

    def continues(self, item: dict[str, Any]) -> bool:
        """Tell whether an item can be part of the same message."""
        kind = _kind(item)
        return kind == "function_call" or not (self._calls or (kind == "message" and self._spoken))

    def add(self, item: dict[str, Any], path: str) -> None:
        """Add an item."""
        self._items.append(item)
        match _kind(item):
            case "function_call":
                call: _CallItem = expect(item, _CallItem, path)
                self._calls.append(Call(call.name, arguments.parsed(call.arguments), call.call_id))
            case "message":
                self._speak(expect(item, _MessageItem, path).content)
            case _:
                self._flatten()
                self._parts.append(_read_item(item))

    def draft(self) -> Iterator[Draft]:
        """Give the message that the items make, if there are any."""
        if self._items:
            content: Content | None = tuple(self._parts) if self._said is None else self._said
            yield Draft("assistant", self._items, content, tuple(self._calls))

    def _speak(self, content: str | list[dict[str, Any]]) -> None:
        self._spoken = True
        if not isinstance(content, str):
            self._parts += [_read_part(block) for block in content]
        elif self._parts:
            self._parts.append(TextPart(content))
        else:
            self._said = content

    def _flatten(self) -> None:
        if self._said is not None:
            self._parts, self._said = [TextPart(self._said)], None


def _kind(item: dict[str, Any]) -> Any:
    return item.get("type", "message")


def _draft(item: dict[str, Any], path: str) -> Draft | None:
    """Read an item that is not the assistant's."""
    if _kind(item) == "function_call_output":
        output: _OutputItem = expect(item, _OutputItem, path)
        result = result_of_blocks(output.output, _read_part)
        return Draft("tool", [item], results=(Result(output.call_id, result),))
    if _kind(item) != "message" or item.get("role") == "assistant":
        return None
    wire: _MessageItem = expect(item, _MessageItem, path)
    if wire.role not in ("user", "system", "developer"):
        raise InvalidPayload(f"no role is called {wire.role!r:.40}", path=f"{path}.role")
    content = (
        wire.content if isinstance(wire.content, str) else tuple(_read_part(one) for one in wire.content)
    )
    return Draft("user" if wire.role == "user" else "system", [item], content)


def _read_item(item: dict[str, Any]) -> Part:
    if item.get("type") != "reasoning":
        return _opaque(item)
    summary = item.get("summary")
    texts = [one.get("text") for one in summary if isinstance(one, dict)] if isinstance(summary, list) else []
    id = text_or_none(item.get("id")) or ""
    signature = text_or_none(item.get("encrypted_content")) or (id if id.startswith(STORED) else None)
    return ReasoningPart("\n".join(text for text in texts if isinstance(text, str)), signature)


def _read_part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "input_image", "image_url": str(url), **rest}:
            return media.image(url, text_or_none(rest.get("detail")))
        case {"type": "input_image", "file_id": str(id)}:
            return ImagePart(file_id=id)
        case {"type": "input_file", **rest}:
            return _read_file(rest) or _opaque(block)
        case _:
            return _opaque(block)


def _read_file(fields: dict[str, Any]) -> FilePart | None:
    name = text_or_none(fields.get("filename"))
    match fields:
        case {"file_data": str(url)} if source := media.from_data_url(url):
            return FilePart(data=source[0], media_type=source[1], name=name)
        case {"file_url": str(url)}:
            return FilePart(url=url, name=name)
        case {"file_id": str(id)}:
            return FilePart(file_id=id, name=name)
        case _:
            return None


def _opaque(block: dict[str, Any]) -> OpaquePart:
    return OpaquePart(format=FORMAT, body=block, text=f"[{block.get('type', 'block')!s:.40}]")
