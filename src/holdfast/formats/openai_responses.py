"""OpenAI Responses: a flat list of items, of which one assistant message makes a run.

Reasoning stands before the item that it produced and stays with it, since both belong to one
message. A run ends, and another message begins, where an item would stand before what we write
first: content comes before calls. Hosted-tool items are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from .. import sent
from ..errors import InvalidPayload
from ..message import Message, Role, ToolCallRequest
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import arguments, media
from .adapter import Adapter
from .draft import Call, Document, Draft, Result
from .port import Violation
from .rules import openai_responses as rules
from .schemas import function_schemas, read_function_schemas
from .scope import Piece, Scope
from .wire import expect, text_or_none

__all__ = ["OpenAIResponses"]


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


class OpenAIResponses(Adapter):
    """The `input` (and `instructions`) of a Responses request."""

    name = "openai-responses"
    list_key = "input"
    keys = rules.KEYS
    bare = True
    system_anywhere = True

    def validate(self, payload: Any, *, request: bool = False) -> list[Violation]:
        """List what the provider would reject; Responses has no rule about the last item."""
        return rules.violations(payload)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the function `tools` of a request."""
        return read_function_schemas(payload)

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"tools": [{"type": "function", **schema} for schema in function_schemas(tools)]}

    def _accepts_id(self, id: str) -> bool:
        return len(id) <= rules.LONGEST_ID

    def _open(self, payload: Any) -> Document:
        if isinstance(payload, list):
            return Document(None, None, payload)
        if not isinstance(payload, dict) or not isinstance(payload.get("input"), str | list):
            raise InvalidPayload("expected a list of items, or an object with `input`", path="$")
        envelope = {key: value for key, value in payload.items() if key not in ("input", "instructions")}
        listed = payload["input"]
        return Document(
            envelope, payload.get("instructions"), [listed] if isinstance(listed, str) else listed
        )

    def _read(self, document: Document) -> Iterator[Draft]:
        if document.system is not None:
            instructions = expect(document.system, str, "$.instructions")
            yield Draft("system", {"instructions": instructions}, instructions)
        run = _Run()
        for index, item in enumerate(document.items):
            path = f"$.input[{index}]"
            if isinstance(item, str):
                yield Draft("user", item, item)
                continue
            if other := _draft(expect(item, dict[str, Any], path), path):
                yield from run.end()
                yield other
            else:
                yield from run.take(item, path)
        yield from run.end()

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return list(messages)

    def _write(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [
                {
                    "type": "function_call_output",
                    "call_id": scope.wire_id(one.tool_call_id),
                    "output": self._output(one.result, scope),
                }
                for one in message.tool_results
            ]
        items = self._said(message, scope)
        return items + [_write_call(call, scope) for call in message.tool_calls]

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        items: list[Any] = []
        for piece in pieces:
            if isinstance(piece.body, dict):
                fields |= piece.body
            else:
                items += [piece.body] if isinstance(piece.body, str) else piece.body
        if len(items) == 1 and isinstance(items[0], str):
            return {**fields, "input": items[0]}
        return {**fields, "input": [_as_item(item) for item in items]}

    def _said(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write content: text and media as message items, reasoning and hosted items as themselves."""
        if isinstance(message.content, str):
            silent = not message.content and message.tool_calls
            return [] if silent else [_message_item(message.role, message.content)]
        items: list[dict[str, Any]] = []
        for is_item, run in groupby(
            self.blocks(message, scope), lambda block: block.get("type") not in _CONTENT_TYPES
        ):
            blocks = list(run)
            items += blocks if is_item else [_message_item(message.role, blocks)]
        return items if items or message.tool_calls else [_message_item(message.role, "")]

    def _output(self, result: Any, scope: Scope) -> Any:
        parts = sent.result_parts(result)
        return self.result_blocks(parts, scope) if parts else sent.result_text(result)

    def _text(self, text: str, role: Role) -> dict[str, Any]:
        return {"type": "output_text" if role == "assistant" else "input_text", "text": text}

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        if role != "user":
            return None
        source: dict[str, Any]
        if isinstance(part, ImagePart):
            url = part.url if part.data is None else media.data_url(part.data, part.media_type)
            source = {"image_url": url} if url else {"file_id": part.file_id}
            return {"type": "input_image", **source, **({"detail": part.detail} if part.detail else {})}
        if part.data is not None:
            source = {"file_data": media.data_url(part.data, part.media_type)}
        else:
            source = {"file_url": part.url} if part.url else {"file_id": part.file_id}
        return {"type": "input_file", **source, **({"filename": part.name} if part.name else {})}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        signature = {"encrypted_content": part.signature} if part.signature else {}
        return {"type": "reasoning", "summary": summary, **signature}


_CONTENT_TYPES = ("input_text", "output_text", "input_image", "input_file", "refusal")


class _Run:
    """The items of one assistant message, as long as they stand in the order in which we write."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._parts: list[Part] = []
        self._said: str | None = None
        self._calls: list[Call] = []

    def take(self, item: dict[str, Any], path: str) -> Iterator[Draft]:
        """Add an item; where it cannot follow, the message so far ends first."""
        kind = item.get("type", "message")
        if kind == "function_call":
            call = expect(item, _CallItem, path)
            self._calls.append(Call(call.name, arguments.parsed(call.arguments), call.call_id))
        else:
            spoken = any(isinstance(part, TextPart) for part in self._parts) or self._said is not None
            if self._calls or (kind == "message" and spoken):
                yield from self.end()
            self._add(item, kind, path)
        self._items.append(item)

    def _add(self, item: dict[str, Any], kind: str, path: str) -> None:
        if kind != "message":
            self._flatten()
            self._parts.append(_read_item(item))
            return
        content = expect(item, _MessageItem, path).content
        if isinstance(content, str) and not self._parts:
            self._said = content
        else:
            self._parts += (
                [TextPart(content)] if isinstance(content, str) else [_read_part(one) for one in content]
            )

    def _flatten(self) -> None:
        if self._said is not None:
            self._parts, self._said = [TextPart(self._said)], None

    def end(self) -> Iterator[Draft]:
        """Give the message that the items make, if there are any."""
        if self._items:
            content: Content | None = self._said if self._said is not None else tuple(self._parts)
            silent = self._calls and self._said is None and not self._parts
            yield Draft("assistant", self._items, None if silent else content, tuple(self._calls))
        self.__init__()  # type: ignore[misc]


def _draft(item: dict[str, Any], path: str) -> Draft | None:
    """Read an item that is not the assistant's."""
    if item.get("type") == "function_call_output":
        output: _OutputItem = expect(item, _OutputItem, path)
        return Draft("tool", [item], results=(Result(output.call_id, _read_output(output.output)),))
    if item.get("type", "message") != "message" or item.get("role") == "assistant":
        return None
    wire: _MessageItem = expect(item, _MessageItem, path)
    if wire.role not in ("user", "system", "developer"):
        raise InvalidPayload(f"no role is called {wire.role!r:.40}", path=f"{path}.role")
    content = (
        wire.content if isinstance(wire.content, str) else tuple(_read_part(one) for one in wire.content)
    )
    return Draft("user" if wire.role == "user" else "system", [item], content)


def _as_item(item: Any) -> Any:
    return _message_item("user", item) if isinstance(item, str) else item


def _message_item(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": scope.wire_id(call.id),
        "name": scope.name(call.name),
        "arguments": arguments.written(call.args),
    }


def _read_output(output: Any) -> Any:
    if isinstance(output, list) and output:
        parts = [_read_part(one) if isinstance(one, dict) else None for one in output]
        if all(isinstance(part, TextPart | ImagePart | FilePart) for part in parts):
            return sent.result_of_parts(part for part in parts if part)
    return output


def _read_item(item: dict[str, Any]) -> Part:
    if item.get("type") != "reasoning":
        return OpaquePart(format=OpenAIResponses.name, body=item, text=f"[{item.get('type')!s:.40}]")
    summary = item.get("summary")
    texts = [one.get("text") for one in summary if isinstance(one, dict)] if isinstance(summary, list) else []
    signature = item.get("encrypted_content")
    text = "\n".join(text for text in texts if isinstance(text, str))
    return ReasoningPart(text, text_or_none(signature))


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
    return OpaquePart(format=OpenAIResponses.name, body=block, text=f"[{block.get('type', 'block')!s:.40}]")
