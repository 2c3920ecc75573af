"""OpenAI Responses: a flat list of items, in which a run of items forms one assistant message.

Reasoning comes before the item that it produced and stays with it, since both belong to one
message. We write content before calls, so any other item after a call ends the run and begins
another message, as does a second message item. Calls that the caller runs are calls, whatever their kind
(`native_calls`); items of tools that the service runs are kept unchanged, and windows take those apart that
hold a result (`hosted_calls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from .. import wire_text
from ..errors import InvalidPayload
from ..ids import CallId, derived
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, Native, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from . import hosted_calls, media
from .draft import Call, Document, Draft, expect, text_or_none
from .edits import value_at
from .exchange import Exchange
from .hosted_calls import HOSTED, Halves, folded, half_kind
from .native_calls import in_words, read_call, read_output, write_call, write_output
from .port import Violation
from .replies import openai_responses as replies
from .replies.reply import ResponseContent, ResponseStream
from .rules import openai_responses as rules
from .rules.report import objects
from .schemas import function_schemas, read_function_schemas
from .scope import Piece, Scope, Slot

# Items are read into drafts: the assistant's in runs, all others one by one.


FORMAT = "openai-responses"

STORED = "rs_"
"""The id prefix of reasoning that the service stores; such an id is as good as a signature."""


class _MessageItem(Struct):
    role: str
    content: str | list[dict[str, Any]]


def drafts(items: Sequence[Any], start: int = 0, *, apart: bool = False) -> Iterator[Draft]:
    """Read items in order from `start` on; if `apart`, hosted calls and their results are read apart."""
    run = _ItemRun(apart=apart)
    for index in range(start, len(items)):
        item, path = items[index], f"$.input[{index}]"
        other = _draft(expect(item, dict[str, Any], path), path)
        if other or not run.continues(item):
            yield from run.drafts(index)
            run = _ItemRun(apart=apart)
        if other:
            other.end = index + 1
            yield other
        else:
            run.add(item, path)
    yield from run.drafts(len(items))


def whole_draft(items: list[Any]) -> Draft:
    """Read the items of one response as one message, in any order."""
    run = _ItemRun()
    answered = {id for item in items if isinstance(item, dict) and (id := _answered(item))}
    for index, item in enumerate(items):
        path = f"$.output[{index}]"
        kind = rules.call_kind(expect(item, dict[str, Any], path))
        if rules.output_kind(item) or (kind and text_or_none(item.get(rules.id_of_call(kind))) in answered):
            run.add_opaque(item)  # the service ran the call itself
            continue
        if other := _draft(item, path):
            raise InvalidPayload(f"expected an item from the assistant, got role {other.role}", path=path)
        run.add(item, path)
    return next(run.drafts(len(items)), Draft("assistant", items, ""))


class _ItemRun:
    """The items of one assistant message, as long as they are in the order that we write."""

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._items: list[dict[str, Any]] = []
        self._parts: list[Part] = []
        self._said: str | None = None
        self._spoken = False
        self._calls: list[Call] = []
        self._answers: list[Halves] = []

    def continues(self, item: dict[str, Any]) -> bool:
        """Return True if an item can belong to the same message."""
        if rules.call_kind(item) or (self._apart and hosted_calls.holds_result(item)):
            return True
        return not (self._calls or (rules.type_of(item) == "message" and self._spoken))

    def add(self, item: dict[str, Any], path: str) -> None:
        """Add an item."""
        if kind := rules.call_kind(item):
            self._items.append(item)
            self._calls.append(read_call(kind, item))
        elif self._apart and (both := hosted_calls.halves(item)):
            self._items.append(both.asked)
            self._calls.append(both.call)
            self._answers.append(both)
        elif rules.type_of(item) == "message":
            self._items.append(item)
            self._speak(expect(item, _MessageItem, path).content)
        else:
            self.add_opaque(item)

    def add_opaque(self, item: dict[str, Any]) -> None:
        """Add an item that is kept unchanged, or reasoning."""
        self._items.append(item)
        self._flatten()
        self._parts.append(_read_item(item))

    def drafts(self, end: int) -> Iterator[Draft]:
        """Yield the message that the items up to `end` form, if there are any, and the results in it."""
        if self._items:
            content: Content | None = tuple(self._parts) if self._said is None else self._said
            yield Draft("assistant", self._items, content, tuple(self._calls), end=end)
        for both in self._answers:
            yield Draft("tool", [both.given], results=(both.result,), end=end)

    def _speak(self, content: str | list[dict[str, Any]]) -> None:
        self._spoken = True
        self._flatten()
        if not isinstance(content, str):
            self._parts += [_read_part(block) for block in content]
        elif self._parts:
            self._parts.append(TextPart(content))
        else:
            self._said = content

    def _flatten(self) -> None:
        if self._said is not None:
            self._parts, self._said = [TextPart(self._said)], None


def _answered(item: dict[str, Any]) -> str | None:
    """Return the id of the call that an item answers, if it answers one."""
    kind = rules.output_kind(item)
    return text_or_none(item.get(rules.id_of_output(kind, item))) if kind else None


def _draft(item: dict[str, Any], path: str) -> Draft | None:
    """Read an item that is not the assistant's."""
    if kind := rules.output_kind(item):
        return Draft("tool", [item], results=(read_output(kind, item, _read_part),))
    if rules.type_of(item) != "message" or item.get("role") == "assistant":
        return None
    wire: _MessageItem = expect(item, _MessageItem, path)
    if wire.role not in ("user", "system", "developer"):
        raise InvalidPayload(f"unknown role {wire.role!r:.40}", path=f"{path}.role")
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


class OpenAIResponses(Exchange):
    """The `input` (and `instructions`) of a Responses request."""

    name = FORMAT
    list_key = "input"
    fields = rules.DOCUMENT
    keys = rules.DOCUMENT.request
    response_keys = rules.DOCUMENT.response
    carried = frozenset({"input", "instructions", "tools"})
    continuing = rules.CONTINUING
    bare = True
    in_runs = True
    system_anywhere = True

    def _violations(self, payload: Any, *, request: bool) -> list[Violation]:
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
        system, listed = payload.get("instructions"), payload["input"]
        own = ("input",) if system is None else ("input", "instructions")
        envelope = {key: value for key, value in payload.items() if key not in own}
        return Document(envelope, system, listed)

    def _read_system(self, given: Any) -> Iterator[Draft]:
        instructions = expect(given, str, "$.instructions")
        yield Draft("system", {"instructions": instructions}, instructions)

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        return iter([Draft("user", items, items, end=1)]) if isinstance(items, str) else drafts(items, start)

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return super()._ordered(in_words(messages, self.name))

    def _settled(self, request: dict[str, Any]) -> dict[str, Any]:
        """Drop reasoning that exists only at the service if the request turns storage off."""
        if request.get("store") is not False or not isinstance(request["input"], list):
            return request
        kept = [item for item in request["input"] if not _is_kept_elsewhere(item)]
        return {**request, "input": kept}

    def _read_reply(self, items: list[Any]) -> Draft:
        return whole_draft(items)

    def _answer(self, payload: Any) -> ResponseContent:
        return replies.answer(payload)

    def _stream(self) -> ResponseStream:
        return replies.ResponsesStream()

    def _write(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        if message.role == "tool":
            return [self._write_result(one, scope) for one in message.tool_results]
        items = self._content(message, scope)
        return items + [self._write_call(call, scope) for call in message.tool_calls]

    def _write_call(self, call: ToolCallRequest, scope: Scope) -> dict[str, Any]:
        if call.kind in HOSTED:
            return hosted_calls.write_call(call, call.provider_id or scope.wire_id(call.id))
        return write_call(call, scope)

    def _write_result(self, result: ToolCallResult, scope: Scope) -> dict[str, Any]:
        call = scope.natives.get(result.tool_call_id)
        if call and call.kind in HOSTED:
            id = call.provider_id or scope.wire_id(call.id)
            return hosted_calls.write_result(result, call.kind, id)
        return write_output(result, scope, partial(self._output, scope=scope))

    def _slots(self, body: Any) -> Iterator[Slot]:
        for index, item in enumerate(body if isinstance(body, list) else ()):
            if not isinstance(item, dict):
                continue
            if kind := rules.call_kind(item):
                name = (index, "name") if kind in ("function", "custom") else None
                yield Slot(False, (index, rules.id_of_call(kind)), name)
            elif kind := rules.output_kind(item):
                yield Slot(True, (index, rules.id_of_output(kind, item)))
            elif kind := half_kind(item):
                yield Slot(item["type"] != kind, (index, "id"))

    def _renamed(self, body: Any, message: Message, scope: Scope) -> Any:
        kinds = [rules.output_kind(item) or half_kind(item) for item in objects(body)]
        for kind, result in zip(kinds, message.tool_results, strict=False):
            made = scope.natives.get(result.tool_call_id)
            wanted = made.kind if made else "function"
            if result.tool_call_id in scope.names and kind != wanted:
                return None  # an output of another kind than its call
        return super()._renamed(body, message, scope)

    def _named_slots(self, body: Any, message: Message) -> list[Slot]:
        """Leave out what the service ran itself and is part of the content; its ids are never renamed."""
        kept = [part.body for part in message.parts if isinstance(part, OpaquePart)]
        slots: list[Slot] = []
        for slot in super()._named_slots(body, message):
            item = value_at(body, (slot.id or ())[:1])
            if item not in kept:
                slots.append(slot._replace(id=None) if half_kind(item) else slot)
        return slots

    def unfolded(self, message: Message) -> tuple[Message, ...]:
        """Return the calls and outputs among the items of a message as calls and results."""
        if message.role != "assistant" or not (_keeps_calls(message) or _keeps_results(message)):
            return (message,)
        native = message.native or Native(format=self.name)
        read = _Apart().parse(
            self.render([replace(message, native=replace(native, envelope=UNSET))])["input"]
        )
        ours = {call.provider_id or call.id: call.id for call in message.tool_calls}
        names: dict[CallId, CallId] = {}
        for call in (call for part in read for call in part.tool_calls):
            theirs = ours.get(call.provider_id or "", CallId(call.provider_id or call.id))
            names[call.id] = call.id if theirs in names.values() else theirs
        return tuple(_unfolded(part, number, message, names) for number, part in enumerate(read))

    def refers(self, message: Message) -> bool:
        """Return True if a message refers to an item that may be a call."""
        return any(isinstance(part, OpaquePart) and rules.may_be_call(part.body) for part in message.parts)

    def _takes(self, message: Message) -> bool:
        if _keeps_calls(message):  # from an older log, perhaps without each other: `unfolded` parts them
            return True
        return super()._takes(message)

    def _fits(self, body: Any, *, leading: bool) -> bool:
        if isinstance(body, dict):
            return isinstance(body.get("instructions"), str)
        return isinstance(body, str | list)

    def _assemble(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        fields = pieces[0].body if pieces and isinstance(pieces[0].body, dict) else {}
        rest = pieces[1:] if fields else pieces
        if len(rest) == 1 and isinstance(rest[0].body, str):
            return {**fields, "input": rest[0].body}
        items = ((item, piece.role == "tool") for piece in rest for item in _as_items(piece.body))
        return {**fields, "input": folded(items)}

    def _content(self, message: Message, scope: Scope) -> list[dict[str, Any]]:
        """Write content: text and media as message items, reasoning and hosted items as separate items."""
        if isinstance(message.content, str):
            silent = not message.content and message.tool_calls
            return [] if silent else [_message_item(message.role, message.content)]
        items: list[dict[str, Any]] = []
        spoken = message.role == "assistant"
        for is_item, run in groupby(
            self.blocks(message, scope), lambda block: spoken and not _is_content(block)
        ):
            blocks = list(run)
            items += blocks if is_item else [_message_item(message.role, blocks)]
        return items if items or message.tool_calls else [_message_item(message.role, "")]

    def _output(self, result: Any, scope: Scope) -> Any:
        parts = wire_text.result_parts(result)
        return self.result_blocks(parts, scope) if parts else wire_text.result_text(result)

    def _text(self, text: str, role: Role) -> dict[str, Any]:
        return {"type": "output_text" if role == "assistant" else "input_text", "text": text}

    def _media(self, part: ImagePart | FilePart, role: Role) -> dict[str, Any] | None:
        if role != "user":
            return None
        source: dict[str, Any]
        if part.url is not None and not media.is_web(part.url):
            return None
        if isinstance(part, ImagePart):
            url = part.url if part.data is None else media.data_url(part.data, part.media_type)
            source = {"image_url": url} if url else {"file_id": part.file_id}
            return {"type": "input_image", **source, **({"detail": part.detail} if part.detail else {})}
        if part.data is not None:
            source = {"file_data": media.data_url(part.data, part.media_type)}
        else:
            source = {"file_url": part.url} if part.url else {"file_id": part.file_id}
        return {"type": "input_file", **source, **({"filename": part.name} if part.name else {})}

    def _reasoning(self, part: ReasoningPart) -> dict[str, Any] | None:
        if not part.signature:
            return None
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        key = "id" if part.signature.startswith(STORED) else "encrypted_content"
        return {"type": "reasoning", "summary": summary, key: part.signature}


class _Apart(OpenAIResponses):
    """Reads each hosted item that holds a result as a call and its result."""

    def _read(self, items: Sequence[Any], start: int = 0, before: Role | None = None) -> Iterator[Draft]:
        return drafts(items, start, apart=True)


def _keeps_results(message: Message) -> bool:
    """Return True if a message keeps calls that the service ran, with their results."""
    bodies = (part.body for part in message.parts if isinstance(part, OpaquePart))
    return any(map(hosted_calls.holds_result, bodies))


def _keeps_calls(message: Message) -> bool:
    """Return True if a message from an older log keeps calls or their outputs as the service's own items."""
    bodies = [part.body for part in message.parts if isinstance(part, OpaquePart)]
    return any(rules.call_kind(body) or rules.output_kind(body) for body in bodies)


def _unfolded(part: Message, number: int, message: Message, names: Mapping[CallId, CallId]) -> Message:
    """Return a part of a message with calls under the provider's ids, by which later results name them."""
    results = (
        (place, replace(one, tool_call_id=names.get(one.tool_call_id, one.tool_call_id)))
        for place, one in enumerate(part.tool_results)
    )
    return replace(
        part.with_results(list(results)),
        id=message.id if number == 0 else derived("unfolded", message.id, str(number)),
        timestamp=message.timestamp,
        tool_calls=tuple(replace(call, id=names[call.id]) for call in part.tool_calls),
    )


def _is_kept_elsewhere(item: Any) -> bool:
    reasoning = isinstance(item, dict) and item.get("type") == "reasoning"
    return reasoning and not item.get("encrypted_content")


def _as_items(body: str | list[Any] | dict[str, Any]) -> list[Any]:
    if isinstance(body, dict):
        return [_message_item("system", body["instructions"])]
    return [_message_item("user", body)] if isinstance(body, str) else body


def _is_content(block: dict[str, Any]) -> bool:
    """Return True if a block belongs inside an assistant message and is not an item of its own."""
    kind = block.get("type")
    return kind == "refusal" or str(kind).startswith(("input_", "output_"))


def _message_item(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}
