"""Anthropic Messages: a separate system prompt, content in blocks, answers inside user messages.

A wire message of the user may hold both results and text; we split it into two messages. Neighbors
of one role become one wire message, as the service itself would merge them, unless the document they
came from kept them separate. A system message among the messages of a document stays there if what precedes
it allows one; any other later system message is a notice in the user's role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Literal

from msgspec import Struct

from .. import catalog, wire_text
from ..errors import InvalidPayload
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import draft, media
from .draft import Call, Document, Draft, Result, expect, result_of_blocks, text_or_none
from .exchange import Exchange
from .port import Violation
from .replies import anthropic as replies
from .replies.reply import ResponseContent, ResponseStream
from .rules import anthropic as rules
from .schemas import function_schemas, read_function_schemas
from .scope import Piece, Scope, Slot
from .turns import are_of_two_roles, in_turns, is_placed, merged, result_runs, with_notices

MAX_TOKENS = 20_000
"""The most that a request asks for if nobody says how much: every request must set `max_tokens`.

Every Claude since 3.7 may write that much. From 21,334 on, Anthropic's SDK refuses requests that are not
streamed, since they might take more than ten minutes.
"""

_TEXT_FILE = "text/plain"
_DOCUMENTS = ("application/pdf",)
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class _AnthropicWire(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class Anthropic(Exchange):
    """The `system` and `messages` of a Messages request."""

    name = "anthropic"
    list_key = "messages"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"messages", "system", "tools"})
    longest_name = rules.LONGEST_NAME
    output_option = "max_tokens"

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
        return rules.violations(payload, request=request)

    def tools(self, payload: Any) -> list[ToolSpec]:
        """Read the `tools` of a request."""
        return read_function_schemas(payload, kind="custom", schema_key="input_schema")

    def _write_tools(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        return {"tools": function_schemas(tools, schema_key="input_schema")}

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
        system = expect(given, str | list[dict[str, Any]], "$.system")
        yield Draft("system", system, _content(system))

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        return in_turns(items, start, before, _drafts)

    def _settled(self, request: dict[str, Any]) -> dict[str, Any]:
        """Add `max_tokens`; drop `thinking` if the last tools were called without it, and a final space."""
        name = request.get("model")
        most = catalog.model(name).output_limit if isinstance(name, str) and name else MAX_TOKENS
        request = {"max_tokens": min(most, MAX_TOKENS), **request}
        broken = {one.rule for one in rules.violations(request, request=True)}
        if "text-end" in broken:
            *before, last = request["messages"]
            request["messages"] = [*before, {**last, "content": _without_end(last["content"])}]
        return {
            key: value
            for key, value in request.items()
            if key != "thinking" or "thinking-first" not in broken
        }

    def _answer(self, payload: Any) -> ResponseContent:
        return replies.answer(payload)

    def _stream(self) -> ResponseStream:
        return replies.AnthropicStream()

    def _write(self, message: Message, scope: Scope) -> Any:
        if message.role == "tool":
            return {"role": "user", "content": [self._result(one, scope) for one in message.tool_results]}
        content: Any = message.content
        if isinstance(content, str) and content.strip() and not message.tool_calls:
            content = self._said(content, message.role, scope)
        else:
            content = self.blocks(message, scope) + [_write_call(call, scope) for call in message.tool_calls]
        if scope.leading:
            return content
        role = "assistant" if message.role == "assistant" else "user"
        return {"role": role, "content": content or [self._text(wire_text.SILENCE, message.role)]}

    def _slots(self, body: Any) -> Iterator[Slot]:
        content = body.get("content") if isinstance(body, dict) else None
        for index, block in enumerate(content if isinstance(content, list) else ()):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_use":
                yield Slot(False, ("content", index, "id"), ("content", index, "name"))
            elif kind == "tool_result":
                yield Slot(True, ("content", index, "tool_use_id"))

    def _fits(self, body: Any, *, leading: bool) -> bool:
        content = body
        if isinstance(body, dict):
            content = None if leading and not self._is_placed(body) else body.get("content")
        elif not leading:
            content = None
        return isinstance(content, str | list)

    def _is_placed(self, body: Any) -> bool:
        return is_placed(body)

    def _without_blanks(self, body: Any, *, leading: bool) -> Any:
        if not isinstance(body, dict):
            return _voiced(body) if leading else body
        content = body.get("content")
        kept = _voiced(content)
        if kept is content:
            return body
        return {**body, "content": kept or [self._text(wire_text.SILENCE, "user")]}

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        pieces = [piece._replace(leading=False) if self._is_placed(piece.body) else piece for piece in pieces]
        system = [
            piece.body
            for piece in pieces
            if piece.leading and (piece.body or (piece.native and not piece.mended))
        ]
        silence = [{"type": "text", "text": wire_text.SILENCE}]
        opening = {"role": "user", "content": silence}
        shown = with_notices(pieces, rules.may_precede_system, _notice, silence)
        wires = merged(shown, "content", opening, blocks=_as_blocks, apart=_are_apart)
        if not system:
            return {"messages": wires}
        whole = system[0] if len(system) == 1 else [block for body in system for block in _as_blocks(body)]
        return {"system": whole, "messages": wires}

    def _result(self, result: ToolCallResult, scope: Scope) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": scope.wire_id(result.tool_call_id)}
        if parts := wire_text.result_parts(result.result):
            block["content"] = self.result_blocks(parts, scope)
        elif (text := wire_text.result_text(result.result)).strip():
            block["content"] = text
        return block | {"is_error": True} if result.is_error else block

    def _text(self, text: str, role: Role) -> dict[str, Any] | None:
        return {"type": "text", "text": text} if text.strip() else None

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        source = _source(part) if role == "user" else None
        if source is None or isinstance(part, ImagePart):
            return source and {"type": "image", "source": source}
        return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        if not part.signature:
            return None
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _voiced(content: Any) -> Any:
    """Return content without the text that the service rejects as blank, also inside results; or the same."""
    if isinstance(content, str):
        return content if content.strip() else ""
    if not isinstance(content, list):
        return content
    kept = [_voiced_block(block) for block in content if not rules.is_blank(block)]
    return content if len(kept) == len(content) and all(map(is_, kept, content)) else kept


def _voiced_block(block: Any) -> Any:
    if not isinstance(block, dict) or block.get("type") != "tool_result":
        return block
    content = block.get("content")
    kept = _voiced(content)
    if kept is content:
        return block
    rest = {key: value for key, value in block.items() if key != "content"}
    return {**rest, "content": kept} if kept else rest


def _without_end(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return content without the white space at its end."""
    if isinstance(content, str):
        return content.rstrip()
    kept = content[:-1]
    return [*kept, *({**last, "text": last["text"].rstrip()} for last in content[-1:])]


def _notice(body: dict[str, Any]) -> dict[str, Any]:
    blocks = _as_blocks(body["content"])
    said = [{**one, "text": wire_text.notice(one["text"])} for one in blocks if one.get("type") == "text"]
    return {"role": "user", "content": said or [{"type": "text", "text": wire_text.SILENCE}]}


def _are_apart(before: Piece, piece: Piece) -> bool:
    """Return True for two roles, and for a piece that begins with thinking: it was a message of its own."""
    if are_of_two_roles(before, piece):
        return True
    content = piece.body.get("content")
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and first.get("type") in rules.THINKING


def _as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _drafts(index: int, item: Any) -> Iterable[Draft]:
    wire: _AnthropicWire = expect(item, _AnthropicWire, f"$.messages[{index}]")
    if isinstance(wire.content, str) or wire.role != "user" or not wire.content:
        return (_draft(wire.role, wire.content, item),)
    return _split(wire.content, item)


def _split(content: list[dict[str, Any]], rest: dict[str, Any]) -> Iterator[Draft]:
    """Split a wire message between results and other blocks; its own fields go with the first part."""
    for is_result, blocks, wire in result_runs(content, _is_result, rules.is_blank):
        yield _draft("tool" if is_result else "user", blocks, {**rest, "content": wire})
        rest = {"role": "user"}


def _is_result(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _draft(
    role: Literal["user", "assistant", "tool", "system"], content: str | list[dict[str, Any]], piece: Any
) -> Draft:
    if isinstance(content, str):
        return Draft(role, piece, content)
    if role == "tool":
        return Draft("tool", piece, results=tuple(map(_read_result, content)))
    if role != "assistant":
        return Draft(role, piece, _content(content))
    calls = tuple(_read_call(block) for block in content if block.get("type") == "tool_use")
    said = _content([block for block in content if block.get("type") != "tool_use"])
    return Draft("assistant", piece, said if said or not calls else None, calls)


def _content(content: str | list[dict[str, Any]]) -> Content:
    return content if isinstance(content, str) else tuple(_read_part(block) for block in content)


def _read_call(block: dict[str, Any]) -> Call:
    return draft.call(block.get("name"), block.get("input"), block.get("id"))


def _write_call(call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": scope.wire_id(call.id),
        "name": scope.name(call.name),
        "input": call.as_object,
    }


def _read_result(block: dict[str, Any]) -> Result:
    result = result_of_blocks(block.get("content") or "", _read_part)
    return Result(text_or_none(block.get("tool_use_id")) or "", result, block.get("is_error") is True)


def _source(part: ImagePart | FilePart) -> dict[str, Any] | None:
    if part.file_id:
        return {"type": "file", "file_id": part.file_id}
    if part.url:
        return {"type": "url", "url": part.url} if media.is_web(part.url) else None
    if part.data is None:
        return None
    if part.media_type in (_IMAGES if isinstance(part, ImagePart) else _DOCUMENTS):
        return {"type": "base64", "media_type": part.media_type, "data": media.encoded(part.data)}
    if part.media_type == _TEXT_FILE and (text := media.as_text(part.data)) is not None:
        return {"type": "text", "media_type": _TEXT_FILE, "data": text}
    return None


def _read_part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image", "source": dict(source)} if found := _read_source(source):
            return ImagePart(**found)
        case {"type": "document", "source": dict(source), **rest} if found := _read_source(source):
            title = rest.get("title")
            return FilePart(**found, name=text_or_none(title))
        case {"type": "thinking", "thinking": str(text), **rest}:
            signature = rest.get("signature")
            return ReasoningPart(text, text_or_none(signature))
        case {"type": "redacted_thinking"}:
            return OpaquePart(format=Anthropic.name, body=block)
        case _:
            return OpaquePart(format=Anthropic.name, body=block, text=f"[{block.get('type', 'block')!s:.40}]")


def _read_source(source: dict[str, Any]) -> dict[str, Any] | None:
    match source:
        case {"type": "base64", "media_type": str(kind), "data": str(text)}:
            data = media.decoded(text)
            return None if data is None else {"data": data, "media_type": kind}
        case {"type": "text", "data": str(text)}:
            return {"data": text.encode(), "media_type": _TEXT_FILE}
        case {"type": "url", "url": str(url)}:
            return {"url": url}
        case {"type": "file", "file_id": str(id)}:
            return {"file_id": id}
        case _:
            return None
