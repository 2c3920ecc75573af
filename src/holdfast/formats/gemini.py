"""Google Gemini: contents of parts, the model's role called `model`, responses that are objects.

Call ids are optional there: a document without them is matched by name and order, and gets none
back. A result that is no object is wrapped, by the documented keys `output` and `error`. A call
that another model made carries the documented signature that skips validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

from .. import sent
from ..errors import InvalidPayload
from ..ids import CallId
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import arguments, media
from .adapter import Adapter
from .draft import Call, Document, Draft, Result
from .pairing import gathered
from .port import Violation
from .rules import gemini as rules
from .schemas import function_schemas, read_spec
from .scope import Piece, Scope
from .turns import in_turns, merged
from .wire import expect, text_or_none

__all__ = ["Gemini"]

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""What the provider documents for calls that its own models did not make."""

UNKNOWN_TOOL = "unknown"


class _Wire(Struct):
    parts: list[dict[str, Any]] = []
    role: Literal["user", "model"] = "user"


class Gemini(Adapter):
    """The `systemInstruction` and `contents` of a generateContent request."""

    name = "gemini"
    list_key = "contents"
    keys = rules.KEYS

    def validate(self, payload: Any, *, request: bool = False) -> list[Violation]:
        """List what the provider would reject; Gemini has no rule about the last content."""
        return rules.violations(payload)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the `functionDeclarations` of a request."""
        listed = payload.get("tools") if isinstance(payload, dict) else None
        found: list[ToolSpec] = []
        for tool in listed if isinstance(listed, list) else ():
            declared = rules.camel(tool).get("functionDeclarations") if isinstance(tool, dict) else None
            for one in declared if isinstance(declared, list) else ():
                spec = read_spec(one, "parametersJsonSchema") or read_spec(one, "parameters")
                found += [spec] if spec else []
        return found

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {
            "tools": [{"functionDeclarations": function_schemas(tools, schema_key="parametersJsonSchema")}]
        }

    def _accepts_id(self, id: str) -> bool:
        return True

    def _open(self, payload: Any) -> Document:
        if isinstance(payload, list):
            return Document(None, None, payload)
        if not isinstance(payload, dict) or not isinstance(payload.get("contents"), list):
            raise InvalidPayload("expected an object with `contents`, or a list of contents", path="$")
        own = ("contents", *rules.SYSTEM_KEYS)
        system = {key: payload[key] for key in rules.SYSTEM_KEYS if key in payload}
        return Document(
            {key: value for key, value in payload.items() if key not in own}, system, payload["contents"]
        )

    def _read(self, document: Document) -> Iterator[Draft]:
        for key, value in (document.system or {}).items():
            wire = _Wire([{"text": value}]) if isinstance(value, str) else expect(value, _Wire, f"$.{key}")
            yield Draft("system", {key: value}, _content(wire.parts))
        yield from in_turns(document.items, _drafts)

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return _in_call_order(gathered(messages), _calls_without_id(messages, self.name))

    def _write(self, message: Message, scope: Scope) -> Any:
        if message.role == "tool":
            return {"role": "user", "parts": [_write_result(one, scope) for one in message.tool_results]}
        foreign = not scope.is_native(message)
        parts = self.blocks(message, scope) + [
            _write_call(call, scope, foreign) for call in message.tool_calls
        ]
        if scope.leading:
            return {"systemInstruction": {"parts": parts}} if parts else {}
        role = "model" if message.role == "assistant" else "user"
        return {"role": role, "parts": parts or [{"text": sent.SILENCE}]}

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        contents = merged(
            pieces,
            "parts",
            apart=lambda one, other: "tool" in (one.role, other.role) and one.role != other.role,
        )
        leading = [piece.body for piece in pieces if piece.leading and piece.body]
        if len(leading) < 2:
            return {**(leading[0] if leading else {}), "contents": contents}
        system = [part for body in leading for value in body.values() for part in _system_parts(value)]
        return {"systemInstruction": {"parts": system}, "contents": contents}

    def _text(self, text: str, role: Role) -> dict[str, Any] | None:
        return {"text": text} if text else None

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        if role == "system":
            return None
        if part.data is not None:
            kind = part.media_type or "application/octet-stream"
            return {"inlineData": {"mimeType": kind, "data": media.encoded(part.data)}}
        guess = part.media_type or media.type_of_url(part.url or "")
        if not part.url or (isinstance(part, ImagePart) and not (guess or "").startswith("image/")):
            return None
        return {"fileData": {**({"mimeType": guess} if guess else {}), "fileUri": part.url}}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any]:
        signature = {"thoughtSignature": part.signature} if part.signature else {}
        return {"text": part.text, "thought": True, **signature}


def _system_parts(value: Any) -> list[Any]:
    return [{"text": value}] if isinstance(value, str) else list(value["parts"])


def _calls_without_id(messages: Sequence[Message], format: str) -> dict[CallId, int]:
    """Number the calls that the provider itself made without an id."""
    native = [m for m in messages if m.tool_calls and m.native and m.native.format == format]
    calls = [call.id for message in native for call in message.tool_calls if call.provider_id is None]
    return {id: number for number, id in enumerate(calls)}


def _in_call_order(messages: list[Message], numbers: dict[CallId, int]) -> list[Message]:
    """Sort the answers to calls without an id, which are matched by order."""
    if not numbers:
        return messages
    ordered: list[Message] = []
    for is_tool, run in groupby(messages, lambda message: message.role == "tool"):
        batch = list(run)
        results = [result for message in batch for result in message.tool_results]
        wanted = sorted(results, key=lambda result: numbers.get(result.tool_call_id, -1))
        if is_tool and wanted != results:
            batch = [batch[0].replace(tool_results=tuple(wanted))]
        ordered += batch
    return ordered


def _drafts(index: int, item: Any) -> tuple[str, Iterator[Draft]]:
    wire: _Wire = expect(item, _Wire, f"$.contents[{index}]")
    parts = [rules.camel(part) for part in wire.parts]
    if wire.role == "user":
        return wire.role, _split(wire.parts, item) if parts else iter([Draft("user", item, "")])
    calls = tuple(
        _read_call(part["functionCall"]) for part in parts if isinstance(part.get("functionCall"), dict)
    )
    said = _content(
        [part for part in wire.parts if not isinstance(rules.camel(part).get("functionCall"), dict)]
    )
    return wire.role, iter([Draft("assistant", item, said if said or not calls else None, calls)])


def _split(parts: list[dict[str, Any]], rest: dict[str, Any]) -> Iterator[Draft]:
    """Split a content where responses and words meet; fields of its own go with the first."""
    joined: bool | None = None
    for is_result, run in groupby(
        parts, lambda part: isinstance(rules.camel(part).get("functionResponse"), dict)
    ):
        blocks = list(run)
        piece = {**rest, "parts": blocks}
        if is_result:
            results = tuple(_read_result(rules.camel(part)["functionResponse"]) for part in blocks)
            yield Draft("tool", piece, results=results, starts=joined)
        else:
            yield Draft("user", piece, _content(blocks), starts=joined)
        rest, joined = {"role": "user"}, False


def _content(parts: list[dict[str, Any]]) -> Content:
    content = tuple(_read_part(part) for part in parts)
    return content[0].text if len(content) == 1 and isinstance(content[0], TextPart) else content


def _read_call(call: dict[str, Any]) -> Call:
    id, name = call.get("id"), call.get("name")
    return Call(
        name if isinstance(name, str) else "",
        arguments.parsed(call.get("args")),
        text_or_none(id),
    )


def _write_call(call: ToolCallRequest, scope: Scope, foreign: bool) -> dict[str, Any]:
    id = {"id": scope.wire_id(call.id)} if foreign or call.provider_id else {}
    part = {"functionCall": {**id, "name": scope.name(call.name), "args": call.args}}
    if not id:
        scope.silent.add(call.id)
    return {**part, "thoughtSignature": SKIP_SIGNATURE} if foreign else part


def _read_result(response: dict[str, Any]) -> Result:
    id, name = response.get("id"), response.get("name")
    result, is_error = response.get("response"), False
    match result:
        case {"output": value, **rest} if not rest:
            result = value
        case {"error": value, **rest} if not rest:
            result, is_error = value, True
        case _:
            pass
    return Result(text_or_none(id), result, is_error, name if isinstance(name, str) else UNKNOWN_TOOL)


def _write_result(result: ToolCallResult, scope: Scope) -> dict[str, Any]:
    value = result.result
    if (parts := sent.result_parts(value)) and not all(isinstance(part, TextPart) for part in parts):
        value = [{"type": "text", "text": sent.described(part)} for part in parts]
        scope.omit("media of a tool result sent as text")
    if result.is_error:
        response = {"error": value}
    elif isinstance(value, dict) and value.keys() not in ({"output"}, {"error"}):
        response = value
    else:
        response = {"output": value}
    call = result.tool_call_id
    id = {} if call in scope.silent else {"id": scope.wire_id(call)}
    name = scope.name(scope.names.get(call, UNKNOWN_TOOL))
    return {"functionResponse": {**id, "name": name, "response": response}}


def _read_part(part: dict[str, Any]) -> Part:
    match rules.camel(part):
        case {"thought": True, "text": str(text), **rest}:
            signature = rest.get("thoughtSignature")
            return ReasoningPart(text, text_or_none(signature))
        case {"text": str(text)}:
            return TextPart(text)
        case {"inlineData": {"mimeType": str(kind), "data": str(text)}} if (
            data := media.decoded(text)
        ) is not None:
            if kind.startswith("image/"):
                return ImagePart(data=data, media_type=kind)
            return FilePart(data=data, media_type=kind)
        case {"fileData": {"fileUri": str(uri), **rest}}:
            declared = text_or_none(rest.get("mimeType"))
            file = ImagePart if (declared or "").startswith("image/") else FilePart
            return file(url=uri, media_type=declared)
        case _:
            return OpaquePart(format=Gemini.name, body=part, text=f"[{next(iter(part), 'part'):.40}]")
