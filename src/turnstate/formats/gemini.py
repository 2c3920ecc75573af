"""Google Gemini: contents with parts, the role `model` for the assistant, responses that are objects.

Call ids are optional: in a document without them, results are matched by name and order, and the
document gets none back. A result that is not an object is wrapped under the documented keys `output`
and `error`. A call that another model made carries the documented signature that skips validation.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

from .. import wire_text
from ..errors import InvalidPayload
from ..ids import CallId
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import draft, media
from .adapter import UNKNOWN_TOOL
from .draft import Call, Document, Draft, Result, expect, text_or_none
from .exchange import Exchange
from .pairing import is_native
from .port import Violation
from .replies import gemini as replies
from .replies.reply import ResponseContent, ResponseStream, plain
from .rules import gemini as rules
from .schemas import function_schemas, read_declaration
from .scope import Piece, Scope, Slot
from .turns import in_turns, merged

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The signature that the provider documents for calls that its own models did not make."""

_NAMING = {"functionCall": False, "function_call": False, "functionResponse": True, "function_response": True}
"""The parts that name a call, and whether they answer it."""


class _GeminiWire(Struct):
    parts: list[dict[str, Any]] = []
    role: Literal["user", "model"] | None = "user"


class _System(Struct):
    parts: list[dict[str, Any]] = []


class Gemini(Exchange):
    """The `systemInstruction` and `contents` of a generateContent request."""

    name = "gemini"
    list_key = "contents"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"contents", *rules.SYSTEM_KEYS, "tools"})

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        return rules.violations(payload, request=request)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the `functionDeclarations` of a request."""
        listed = payload.get("tools") if isinstance(payload, dict) else None
        found: list[ToolSpec] = []
        for tool in listed if isinstance(listed, list) else ():
            declared = rules.camel(tool).get("functionDeclarations") if isinstance(tool, dict) else None
            for one in declared if isinstance(declared, list) else ():
                spec = read_declaration(rules.camel(one)) if isinstance(one, dict) else None
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
        system = {key: payload[key] for key in rules.SYSTEM_KEYS if payload.get(key) is not None}
        envelope = {key: value for key, value in payload.items() if key != "contents" and key not in system}
        return Document(envelope, system, payload["contents"])

    def _read_system(self, given: Any) -> Iterator[Draft]:
        for key, value in given.items():
            parts = [{"text": value}] if isinstance(value, str) else expect(value, _System, f"$.{key}").parts
            yield Draft("system", {key: value}, _content(parts))

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        return in_turns(items, start, before, _drafts)

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return _in_call_order(super()._ordered(messages), _calls_without_id(messages, self.name))

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Move all fields but model and contents into the SDK's `config`, and replace base64 with bytes."""
        own = {key: request[key] for key in ("model",) if key in request}
        given = plain(request.get("config") or {})
        rest = {key: value for key, value in request.items() if key not in ("model", "contents", "config")}
        config = {**rest.pop("generationConfig", {}), **rest, **given}
        named = {_snake(key): value for key, value in config.items() if value is not None}
        contents = [{**one, "parts": list(map(_with_bytes, one["parts"]))} for one in request["contents"]]
        return {**own, "contents": contents, **({"config": named} if named else {})}

    def _answer(self, payload: Any) -> ResponseContent:
        return replies.answer(payload)

    def _stream(self) -> ResponseStream:
        return replies.GeminiStream()

    def _write(self, message: Message, scope: Scope) -> Any:
        if message.role == "tool":
            return {"role": "user", "parts": [_write_result(one, scope) for one in message.tool_results]}
        parts = self.blocks(message, scope) + [_write_call(call, scope) for call in message.tool_calls]
        if scope.leading:
            return {"systemInstruction": {"parts": parts}} if parts else {}
        role = "model" if message.role == "assistant" else "user"
        return {"role": role, "parts": parts or [{"text": wire_text.SILENCE}]}

    def _may_start(self, message: Message) -> bool:
        return not message.tool_calls and not message.tool_results

    def _slots(self, body: Any) -> Iterator[Slot]:
        parts = body.get("parts") if isinstance(body, dict) else None
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            for key, value in part.items() if isinstance(part, dict) else ():
                if key in _NAMING and isinstance(value, dict):
                    at = ("parts", index, key)
                    id = (*at, "id") if value.get("id") else None
                    yield Slot(_NAMING[key], id, (*at, "name"))

    def _fits(self, body: Any, *, leading: bool) -> bool:
        if not isinstance(body, dict):
            return False
        return body.keys() <= set(rules.SYSTEM_KEYS) if leading else isinstance(body.get("parts", []), list)

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        opening = {"role": "user", "parts": [{"text": wire_text.SILENCE}]}
        contents = merged(
            pieces, "parts", opening, apart=lambda one, other: (one.role == "tool") != (other.role == "tool")
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
        guess = part.media_type or media.type_of_url(part.url or "")
        if isinstance(part, ImagePart) and not (guess or "").startswith("image/"):
            return None
        if part.data is not None:
            return {"inlineData": {"mimeType": guess or media.UNTYPED, "data": media.encoded(part.data)}}
        if not part.url:
            return None
        return {"fileData": {**({"mimeType": guess} if guess else {}), "fileUri": part.url}}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any]:
        signature = {"thoughtSignature": part.signature} if part.signature else {}
        return {"text": part.text, "thought": True, **signature}


def _snake(key: str) -> str:
    return re.sub("([A-Z])", lambda letter: "_" + letter[1].lower(), key)


def _with_bytes(part: dict[str, Any]) -> dict[str, Any]:
    """Replace the base64 in a part with bytes, which the SDK encodes itself."""
    spelled = rules.camel(part)
    if isinstance(signature := spelled.get("thoughtSignature"), str):
        spelled["thoughtSignature"] = _bytes(signature)
    if isinstance(blob := spelled.get("inlineData"), dict) and isinstance(blob.get("data"), str):
        spelled["inlineData"] = {**blob, "data": _bytes(blob["data"])}
    return spelled


def _bytes(text: str) -> bytes:
    """Decode base64 in either alphabet: the SDK writes the URL-safe one, the service writes both."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))


def _system_parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [{"text": value}] if value else []
    parts = value.get("parts") if isinstance(value, dict) else None
    return parts if isinstance(parts, list) else []


def _calls_without_id(messages: Sequence[Message], format: str) -> dict[CallId, tuple[str, int]]:
    """Return the name and number of each call that the provider itself made without an id."""
    native = [message for message in messages if message.tool_calls and is_native(message, format)]
    calls = [call for message in native for call in message.tool_calls if call.provider_id is None]
    return {call.id: (call.name, number) for number, call in enumerate(calls)}


def _in_call_order(messages: list[Message], calls: dict[CallId, tuple[str, int]]) -> list[Message]:
    """Sort the answers to calls without an id if those with the same name are out of order."""
    if not calls:
        return messages
    ordered: list[Message] = []
    for is_tool, run in groupby(messages, lambda message: message.role == "tool"):
        batch = list(run)
        results = [result for message in batch for result in message.tool_results]
        known = [calls[result.tool_call_id] for result in results if result.tool_call_id in calls]
        if is_tool and sorted(known, key=_name) != sorted(known):
            results.sort(key=lambda result: calls.get(result.tool_call_id, ("", -1))[1])
            batch = [batch[0].replace(tool_results=tuple(results))]
        ordered += batch
    return ordered


def _name(call: tuple[str, int]) -> str:
    return call[0]


def _drafts(index: int, item: Any) -> Iterable[Draft]:
    wire: _GeminiWire = expect(item, _GeminiWire, f"$.contents[{index}]")
    if wire.role != "model":
        return _split(wire.parts, item) if wire.parts else (Draft("user", item, ""),)
    parts = [rules.camel(part) for part in wire.parts]
    calls = tuple(
        _read_call(part["functionCall"]) for part in parts if isinstance(part.get("functionCall"), dict)
    )
    said = _content(
        [
            one
            for one, part in zip(wire.parts, parts, strict=True)
            if not isinstance(part.get("functionCall"), dict)
        ]
    )
    return (Draft("assistant", item, said if said or not calls else None, calls),)


def _split(parts: list[dict[str, Any]], rest: dict[str, Any]) -> Iterator[Draft]:
    """Split a content between responses and other parts; its own fields go with the first part."""
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
    return draft.call(call.get("name"), call.get("args"), call.get("id"))


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    id = {} if scope.native and not call.provider_id else {"id": scope.wire_id(call.id)}
    if not id:
        scope.silent.add(call.id)
    return {
        "functionCall": {**id, "name": scope.name(call.name), "args": call.as_object},
        "thoughtSignature": SKIP_SIGNATURE,
    }


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
    if parts := wire_text.result_parts(value):
        value = [{"type": "text", "text": scope.in_words(part)} for part in parts]
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
            return OpaquePart(
                format=Gemini.name, body=part, text=f"[{next(iter(rules.camel(part)), 'part'):.40}]"
            )
