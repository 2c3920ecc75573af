"""OpenAI Chat Completions: one wire message per message, one `tool` message per result.

System messages may appear anywhere. Arguments are sent as a JSON string. Ids may repeat across
batches, so an answer belongs to the nearest batch before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct

from .. import wire_text
from ..errors import InvalidPayload
from ..message import Message, Role, ToolCallRequest
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import draft, media
from .draft import Call, Document, Draft, Result, expect, result_of_blocks, text_or_none
from .exchange import Exchange
from .pairing import is_native
from .port import Violation
from .replies import openai_chat as replies
from .replies.reply import ResponseContent, ResponseStream
from .rules import openai_chat as rules
from .schemas import function_schemas, read_function_schemas
from .scope import Piece, Scope, Slot

_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}


class _Function(Struct):
    name: str = ""
    arguments: Any = ""


class _Custom(Struct):
    name: str = ""
    input: str = ""


class _Call(Struct):
    id: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _ChatWire(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    audio: Any = None


class OpenAIChat(Exchange):
    """The `messages` of a Chat Completions request."""

    name = "openai-chat"
    list_key = "messages"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"messages", "tools"})
    bare = True
    unique_ids = False
    system_anywhere = True

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        return rules.violations(payload)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the `tools` of a request."""
        return read_function_schemas(payload, inner="function")

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"tools": [{"type": "function", "function": schema} for schema in function_schemas(tools)]}

    def _accepts_id(self, id: str) -> bool:
        return len(id) <= rules.LONGEST_ID

    def _open(self, payload: Any) -> Document:
        if isinstance(payload, list):
            return Document(None, None, payload)
        if not isinstance(payload, dict) or not isinstance(payload.get("messages"), list):
            raise InvalidPayload("expected a list of messages, or an object with `messages`", path="$")
        envelope = {key: value for key, value in payload.items() if key != "messages"}
        return Document(envelope, None, payload["messages"])

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        for index in range(start, len(items)):
            wire: _ChatWire = expect(items[index], _ChatWire, f"$.messages[{index}]")
            draft = _draft(wire, [items[index]])
            draft.end = index + 1
            yield draft

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return list(_in_batches(super()._ordered(messages), self.name))

    def _answer(self, payload: Any) -> ResponseContent:
        return replies.answer(payload)

    def _stream(self) -> ResponseStream:
        return replies.ChatStream()

    def _write(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [
                {
                    "role": "tool",
                    "tool_call_id": scope.wire_id(one.tool_call_id),
                    "content": self._output(one.result, scope),
                }
                for one in message.tool_results
            ]
        wire: dict[str, Any] = {"role": message.role, "content": self._content(message, scope)}
        if message.tool_calls:
            wire["tool_calls"] = [_write_call(call, scope) for call in message.tool_calls]
        return [wire]

    def _slots(self, body: Any) -> Iterator[Slot]:
        for number, wire in enumerate(body if isinstance(body, list) else ()):
            calls = wire.get("tool_calls") if isinstance(wire, dict) else None
            for index, call in enumerate(calls if isinstance(calls, list) else ()):
                at = (number, "tool_calls", index)
                kind = "custom" if isinstance(call, dict) and call.get("custom") else "function"
                yield Slot(False, (*at, "id"), (*at, kind, "name"))
            if isinstance(wire, dict) and wire.get("role") == "tool":
                yield Slot(True, (number, "tool_call_id"))

    def _fits(self, body: Any, *, leading: bool) -> bool:
        return isinstance(body, list)

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        return {"messages": [wire for piece in pieces for wire in piece.body]}

    def _content(self, message: Message, scope: Scope) -> Any:
        if isinstance(message.content, str):
            return message.content
        return self.blocks(message, scope) or (None if message.tool_calls else "")

    def _output(self, result: Any, scope: Scope) -> Any:
        if parts := wire_text.result_parts(result):
            return [self._text(scope.in_words(part), "tool") for part in parts]
        return wire_text.result_text(result)

    def _text(self, text: str, role: Role) -> dict[str, Any]:
        return {"type": "text", "text": text}

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        if role != "user":
            return None
        if isinstance(part, ImagePart):
            url = media.data_url(part.data, part.media_type) if part.data is not None else part.url
            detail = {"detail": part.detail} if part.detail else {}
            known = part.data is not None or media.is_web(part.url)
            return {"type": "image_url", "image_url": {"url": url, **detail}} if known else None
        if part.data is None:
            return {"type": "file", "file": {"file_id": part.file_id}} if part.file_id else None
        if audio := _AUDIO.get(part.media_type or ""):
            return {"type": "input_audio", "input_audio": {"data": media.encoded(part.data), "format": audio}}
        name = {"filename": part.name} if part.name else {}
        return {"type": "file", "file": {"file_data": media.data_url(part.data, part.media_type), **name}}

    def _reasoning(self, part: ReasoningPart) -> None:
        return None


def _in_batches(messages: Sequence[Message], format: str) -> Iterator[Message]:
    """Join a run of assistant messages whose calls are answered together into one message."""
    for speaking, group in groupby(messages, lambda message: message.role == "assistant"):
        run = list(group)
        yield from [_batch(run)] if speaking and _is_batch(run, format) else run


def _is_batch(run: Sequence[Message], format: str) -> bool:
    calls = [call.id for message in run for call in message.tool_calls]
    speaks_on = any(message.tool_calls for message in run[:-1])
    foreign = not all(is_native(message, format) for message in run)
    return speaks_on and foreign and len(set(calls)) == len(calls)


def _batch(run: Sequence[Message]) -> Message:
    parts = tuple(part for message in run for part in message.parts)
    calls = tuple(call for message in run for call in message.tool_calls)
    return run[0].replace(content=parts or None, tool_calls=calls)


def _draft(wire: _ChatWire, piece: list[Any]) -> Draft:
    if wire.role == "tool":
        result = result_of_blocks(wire.content, _read_part)
        return Draft("tool", piece, results=(Result(wire.tool_call_id or "", result),))
    role: Role = "system" if wire.role == "developer" else wire.role
    calls = tuple(_read_call(call) for call in wire.tool_calls or ()) if role == "assistant" else ()
    content = _read_content(wire)
    if content is None and not calls:
        content = wire.refusal or _transcript(wire.audio)
    return Draft(role, piece, content, calls)


def _transcript(audio: Any) -> str:
    """Return the transcript of an assistant's audio, for readers that cannot get the audio."""
    return text_or_none(audio.get("transcript")) or "" if isinstance(audio, dict) else ""


def _read_call(call: _Call) -> Call:
    if call.custom is not None:
        return Call(call.custom.name, {"input": call.custom.input}, call.id, kind="custom")
    function = call.function or _Function()
    return draft.call(function.name, function.arguments, call.id)


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    if call.kind == "custom" and isinstance(given := call.args.get("input"), str):
        custom = {"name": scope.name(call.name), "input": given}
        return {"id": scope.wire_id(call.id), "type": "custom", "custom": custom}
    function = {"name": scope.name(call.name), "arguments": draft.written(call)}
    return {"id": scope.wire_id(call.id), "type": "function", "function": function}


def _read_content(wire: _ChatWire) -> Content | None:
    if wire.content is None or isinstance(wire.content, str):
        return wire.content
    return tuple(_read_part(block) for block in wire.content)


def _read_part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return media.image(url, text_or_none(rest.get("detail")))
        case {"type": "file", "file": {"file_id": str(id)}}:
            return FilePart(file_id=id)
        case {"type": "file", "file": {"file_data": str(url), **rest}} if source := media.from_data_url(url):
            name = rest.get("filename")
            return FilePart(data=source[0], media_type=source[1], name=text_or_none(name))
        case {"type": "input_audio", "input_audio": {"data": str(text), "format": str(kind)}} if (
            data := media.decoded(text)
        ) is not None:
            return FilePart(data=data, media_type=media.media_type(kind) or f"audio/{kind}")
        case _:
            return OpaquePart(
                format=OpenAIChat.name, body=block, text=f"[{block.get('type', 'block')!s:.40}]"
            )
