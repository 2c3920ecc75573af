"""Amazon Bedrock Converse: strict alternation, one key per block, tool definitions always present.

Results are blocks of a user message, one for each call. A result that is a JSON object is sent as
`json`, any other as text. A document with tool blocks must define its tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from .. import wire_text
from ..errors import InvalidPayload
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import draft, media
from .adapter import UNKNOWN_TOOL
from .draft import Call, Document, Draft, Result, expect, result_of_blocks, text_or_none
from .exchange import Exchange
from .port import Violation
from .replies import bedrock as replies
from .replies.reply import ResponseContent, ResponseStream
from .rules import bedrock as rules
from .schemas import minimal_specs, read_spec
from .scope import Piece, Scope, Slot
from .turns import are_of_two_roles, in_turns, is_placed, merged, result_runs, with_notices

_BYTES = ("bytes", "redactedContent")
_JSON = {"input", "json"}  # the values of tools, which may use any key
_NAME_OF_DOCUMENT = re.compile(r"[^a-zA-Z0-9()\[\]-]+")
_IMAGES = ("png", "jpeg", "gif", "webp")
_DOCUMENTS = ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")


class _BedrockWire(Struct):
    role: Literal["user", "assistant", "system"]
    content: list[dict[str, Any]]


class Bedrock(Exchange):
    """The `system`, `messages` and `toolConfig` of a Converse request."""

    name = "bedrock"
    list_key = "messages"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"messages", "system", "toolConfig"})

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        return rules.violations(payload, request=request)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the `toolConfig` of a request."""
        match payload:
            case {"toolConfig": {"tools": list(tools)}}:
                found = (_read_tool(tool) for tool in tools)
                return [spec for spec in found if spec]
            case _:
                return []

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"toolConfig": {"tools": [{"toolSpec": _write_tool(tool)} for tool in tools]}}

    def _required(self, messages: Sequence[Message], envelope: dict[str, Any]) -> dict[str, Any]:
        if _defines_tools(envelope):
            return {}
        specs = minimal_specs(messages)
        orphans = not specs and any(message.tool_results for message in messages)
        return self._defined([ToolSpec(name=UNKNOWN_TOOL)] if orphans else specs)

    def _accepts_id(self, id: str) -> re.Match[str] | None:
        return rules.ID.fullmatch(id)

    def _open(self, payload: Any) -> Document:
        if isinstance(payload, list):
            return Document(None, None, payload)
        if not isinstance(payload, dict) or not isinstance(payload.get("messages"), list):
            raise InvalidPayload("expected an object with `messages`, or a list of messages", path="$")
        system = payload.get("system")
        own = ("messages",) if system is None else ("messages", "system")
        envelope = {key: value for key, value in payload.items() if key not in own}
        return Document(envelope, system, payload["messages"])

    def _read_system(self, given: Any) -> Iterator[Draft]:
        system = expect(given, list[dict[str, Any]], "$.system")
        yield Draft("system", system, _content(system))

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        return in_turns(items, start, before, _drafts)

    def _settled(self, request: dict[str, Any]) -> dict[str, Any]:
        """Rename `model` to `modelId`, as Converse calls it."""
        return {"modelId" if key == "model" else key: value for key, value in request.items()}

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Replace base64 with bytes, which the SDK encodes itself."""
        call: dict[str, Any] = _with_bytes(request)
        return call

    def _answer(self, payload: Any) -> ResponseContent:
        return replies.answer(payload)

    def _stream(self) -> ResponseStream:
        return replies.BedrockStream()

    def _write(self, message: Message, scope: Scope) -> Any:
        if message.role == "tool":
            return {"role": "user", "content": [self._result(one, scope) for one in message.tool_results]}
        content = self.blocks(message, scope) + [_write_call(call, scope) for call in message.tool_calls]
        if scope.leading:
            return content
        role = "assistant" if message.role == "assistant" else "user"
        return {"role": role, "content": content or [{"text": wire_text.SILENCE}]}

    def _may_start(self, message: Message) -> bool:
        return False

    def mended(self, message: Message) -> tuple[Message, str | None]:
        """Return a message as a window may send it, and a note on the change if the provider rejects it."""
        message, done = super().mended(message)
        native = message.native
        if native and isinstance(native.envelope, dict) and not _defines_tools(native.envelope):
            message = replace(message, native=replace(native, mended=True))
        return message, done

    def _slots(self, body: Any) -> Iterator[Slot]:
        content = body.get("content") if isinstance(body, dict) else None
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict):
                continue
            if isinstance(block.get("toolUse"), dict):
                at = ("content", index, "toolUse")
                yield Slot(False, (*at, "toolUseId"), (*at, "name"))
            if isinstance(block.get("toolResult"), dict):
                yield Slot(True, ("content", index, "toolResult", "toolUseId"))

    def _fits(self, body: Any, *, leading: bool) -> bool:
        content = body
        if isinstance(body, dict):
            content = None if leading and not self._is_placed(body) else body.get("content")
        elif not leading:
            content = None
        return isinstance(content, list)

    def _is_placed(self, body: Any) -> bool:
        return is_placed(body)

    def _without_blanks(self, body: Any, *, leading: bool) -> Any:
        if not isinstance(body, dict):
            return _voiced(body) if leading else body
        content = body.get("content")
        kept = _voiced(content)
        return body if kept is content else {**body, "content": kept or [{"text": wire_text.SILENCE}]}

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        pieces = [piece._replace(leading=False) if self._is_placed(piece.body) else piece for piece in pieces]
        system = [
            piece.body
            for piece in pieces
            if piece.leading and (piece.body or (piece.native and not piece.mended))
        ]
        silence = [{"text": wire_text.SILENCE}]
        opening = {"role": "user", "content": silence}
        shown = with_notices(pieces, _is_of_user, _notice, silence)
        wires = merged(shown, "content", opening, apart=are_of_two_roles)
        blocks = [block for body in system for block in body]
        return {"system": blocks, "messages": wires} if system else {"messages": wires}

    def _result(self, result: ToolCallResult, scope: Scope) -> dict[str, Any]:
        block: dict[str, Any] = {"toolUseId": scope.wire_id(result.tool_call_id)}
        value = result.result
        if parts := wire_text.result_parts(value):
            block["content"] = self.result_blocks(parts, scope) or [{"text": wire_text.SILENCE}]
        elif isinstance(value, dict):
            block["content"] = [{"json": value}]
        else:
            block["content"] = [
                self._text(wire_text.result_text(value), "user") or {"text": wire_text.SILENCE}
            ]
        return {"toolResult": block | {"status": "error"} if result.is_error else block}

    def _text(self, text: str, role: Role) -> dict[str, Any] | None:
        return {"text": text} if text.strip() else None

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        kind = media.extension(part.media_type)
        source = _source(part) if role == "user" else None
        if source is None:
            return None
        if isinstance(part, ImagePart):
            return {"image": {"format": kind, "source": source}} if kind in _IMAGES else None
        name = _NAME_OF_DOCUMENT.sub(" ", part.name or "").strip() or "document"
        return {"document": {"format": kind, "name": name, "source": source}} if kind in _DOCUMENTS else None

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any]:
        signature = {"signature": part.signature} if part.signature else {}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}


def _voiced(content: Any) -> Any:
    """Return blocks without the text that the service rejects as blank, also inside results; or the same."""
    if not isinstance(content, list):
        return content
    kept = [_voiced_block(block) for block in content if not rules.is_blank(block)]
    return content if len(kept) == len(content) and all(map(is_, kept, content)) else kept


def _voiced_block(block: Any) -> Any:
    result = block.get("toolResult") if isinstance(block, dict) else None
    if not isinstance(result, dict):
        return block
    content = result.get("content")
    kept = _voiced(content)
    if kept is content:
        return block
    return {**block, "toolResult": {**result, "content": kept or [{"text": wire_text.SILENCE}]}}


def _is_of_user(body: dict[str, Any]) -> bool:
    return body.get("role") == "user"


def _notice(body: dict[str, Any]) -> dict[str, Any]:
    said = [{**one, "text": wire_text.notice(one["text"])} for one in body["content"] if "text" in one]
    return {"role": "user", "content": said or [{"text": wire_text.SILENCE}]}


def _with_bytes(value: Any) -> Any:
    match value:
        case list():
            return [_with_bytes(item) for item in value]
        case dict():
            return {
                key: media.decoded(item) if key in _BYTES and isinstance(item, str) else _with_bytes(item)
                for key, item in value.items()
                if key not in _JSON
            } | {key: value[key] for key in _JSON & value.keys()}
        case _:
            return value


def _defines_tools(envelope: dict[str, Any]) -> bool:
    config = envelope.get("toolConfig")
    return isinstance(config, dict) and bool(config.get("tools"))


def _read_tool(tool: Any) -> ToolSpec | None:
    match tool:
        case {"toolSpec": {"inputSchema": {"json": dict(schema)}, **rest}}:
            return read_spec({**rest, "schema": schema}, "schema")
        case _:
            return None


def _write_tool(tool: ToolSpec) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **description, "inputSchema": {"json": tool.input_schema}}


def _drafts(index: int, item: Any) -> Iterable[Draft]:
    wire: _BedrockWire = expect(item, _BedrockWire, f"$.messages[{index}]")
    if wire.role == "system":
        return (Draft("system", item, _content(wire.content)),)
    if wire.role == "user":
        return _split(wire.content, item) if wire.content else (Draft("user", item, ""),)
    calls = tuple(
        _read_call(block["toolUse"]) for block in wire.content if isinstance(block.get("toolUse"), dict)
    )
    said = _content([block for block in wire.content if not isinstance(block.get("toolUse"), dict)])
    return (Draft("assistant", item, said if said or not calls else None, calls),)


def _split(content: list[dict[str, Any]], rest: dict[str, Any]) -> Iterator[Draft]:
    """Split a wire message between results and other blocks; its own fields go with the first part."""
    for is_result, blocks, wire in result_runs(content, _is_result, rules.is_blank):
        piece = {**rest, "content": wire}
        if is_result:
            found = tuple(_read_result(block["toolResult"]) for block in blocks)
            yield Draft("tool", piece, results=found)
        else:
            yield Draft("user", piece, _content(blocks))
        rest = {"role": "user"}


def _is_result(block: dict[str, Any]) -> bool:
    return isinstance(block.get("toolResult"), dict)


def _content(blocks: list[dict[str, Any]]) -> Content:
    parts = tuple(_read_part(block) for block in blocks)
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts


def _read_call(block: dict[str, Any]) -> Call:
    return draft.call(block.get("name"), block.get("input"), block.get("toolUseId"))


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    wire = {"toolUseId": scope.wire_id(call.id), "name": scope.name(call.name), "input": call.as_object}
    return {"toolUse": wire}


def _read_result(block: dict[str, Any]) -> Result:
    match block.get("content"):
        case [{"json": result}] | [{"text": str(result)}]:
            pass
        case content:
            result = result_of_blocks(content or "", _read_part)
    return Result(text_or_none(block.get("toolUseId")) or "", result, block.get("status") == "error")


def _source(part: ImagePart | FilePart) -> dict[str, Any] | None:
    if part.data is not None:
        return {"bytes": media.encoded(part.data)}
    return {"s3Location": {"uri": part.url}} if part.url and part.url.startswith("s3://") else None


def _read_part(block: dict[str, Any]) -> Part:
    match block:
        case {"text": str(text)}:
            return TextPart(text)
        case {"image": {"format": str(kind), "source": dict(source)}} if found := _read_source(source):
            return ImagePart(**found, media_type=media.media_type(kind) or f"image/{kind}")
        case {"document": {"format": str(kind), "source": dict(source), **rest}} if found := _read_source(
            source
        ):
            name = rest.get("name")
            return FilePart(
                **found,
                media_type=media.media_type(kind) or f"application/{kind}",
                name=text_or_none(name),
            )
        case {"reasoningContent": {"reasoningText": {"text": str(text), **rest}}}:
            signature = rest.get("signature")
            return ReasoningPart(text, text_or_none(signature))
        case {"cachePoint": _} | {"reasoningContent": {"redactedContent": _}}:
            return OpaquePart(format=Bedrock.name, body=block)
        case _:
            return OpaquePart(format=Bedrock.name, body=block, text=f"[{next(iter(block), 'block'):.40}]")


def _read_source(source: dict[str, Any]) -> dict[str, Any] | None:
    match source:
        case {"bytes": str(text)}:
            data = media.decoded(text)
            return None if data is None else {"data": data}
        case {"s3Location": {"uri": str(uri)}}:
            return {"url": uri}
        case _:
            return None
