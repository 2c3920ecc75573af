"""Drafts: messages as read from a document, before their ids are assigned and results are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from .. import message, strict_json, wire_text
from ..errors import InputError, InvalidPayload
from ..ids import UNKNOWN_TIME, CallId, derived_id
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..part import Content, FilePart, ImagePart, Native, Part, TextPart
from .pairing import Answers, core_id


class Call(NamedTuple):
    """A call as read from a document."""

    name: str
    args: dict[str, Any]
    id: str | None
    raw: str | None = None
    kind: str | None = None


class Result(NamedTuple):
    """A result as read from a document: matched by id if it has one, else by the name of the tool."""

    id: str | None
    result: Any
    is_error: bool = False
    name: str | None = None
    kind: str | None = None


class Draft(Struct):
    """A message as read from a document, before its ids are assigned; ``end`` is where its items end."""

    role: Role
    piece: Any
    content: Content | None = None
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    starts: bool | None = None
    end: int = 0


class Document(NamedTuple):
    """The parts of a payload; an envelope of None means a bare list, and text as items is one question."""

    envelope: dict[str, Any] | None
    system: Any
    items: list[Any] | str


def result_of_blocks(blocks: Any, read: Callable[[dict[str, Any]], Part]) -> Any:
    """Read the blocks of a result as parts if all are text or media; an empty list is empty text."""
    if not isinstance(blocks, list):
        return blocks
    parts = [read(block) if isinstance(block, dict) else None for block in blocks]
    if not all(isinstance(part, TextPart | ImagePart | FilePart) for part in parts):
        return blocks
    return wire_text.result_of_parts(part for part in parts if part) if parts else ""


class Settling:
    """Turns drafts into messages in order; derives ids from position and content, pairs results and calls."""

    def __init__(self, native: Native) -> None:
        self._native = native
        self._answers = Answers()
        self._taken = set[CallId]()

    def message(self, index: int, draft: Draft) -> Message:
        """Return the next draft as a message."""
        calls = tuple(_settled_call(call, index, self._taken) for call in draft.calls) if draft.calls else ()
        results = tuple(
            ToolCallResult(
                tool_call_id=self._answers.answer(index, result.id, result.name),
                result=result.result,
                is_error=result.is_error,
                kind=result.kind or UNSET,
            )
            for result in draft.results
        )
        self._answers.ask(calls)
        return Message(
            id=derived_id(index, msgspec.json.encode(draft.piece)),
            timestamp=UNKNOWN_TIME,
            role=draft.role,
            content=draft.content if draft.content or calls or results else "",
            tool_calls=calls,
            tool_results=results,
            kind="foreign" if draft.role == "system" else None,
            native=self._native,
        )

    def pass_over(self, index: int, message: Message, named: Iterable[tuple[str | None, str | None]]) -> None:
        """Skip a draft that was read before as `message`; `named` says how it named its results."""
        self._taken.update(call.id for call in message.tool_calls)
        for id, name in named:
            self._answers.answer(index, id, name)
        self._answers.ask(message.tool_calls)


def _settled_call(call: Call, index: int, taken: set[CallId]) -> ToolCallRequest:
    id = core_id(call.id, index, taken)
    return ToolCallRequest(
        id=id,
        name=call.name or "unnamed",
        args=call.args,
        provider_id=call.id or None,
        raw=call.raw,
        kind=call.kind,
    )


# Tool-call arguments that travel as a JSON string, as OpenAI's do.


def call(name: Any, arguments: Any, id: Any) -> Call:
    """Read a call; keep arguments that are not a JSON object as text."""
    args, raw = _parsed(arguments)
    return Call(text_or_none(name) or "", args, text_or_none(id), raw)


def written(call: ToolCallRequest) -> str:
    """Write the arguments of a call as a JSON string, or as the model wrote them if they are invalid."""
    raw = call.unparsed
    return wire_text.json_text(call.args) if raw is None else raw


def _parsed(arguments: Any) -> tuple[dict[str, Any], str | None]:
    """Return arguments as an object; if they are not one, return an empty object and their text."""
    match arguments:
        case {message.UNPARSED: str(text), **rest} if not rest:
            return {}, text
        case dict():
            return arguments, None
        case None | "":
            return {}, None
        case str():
            try:
                value = strict_json.read(arguments, max_depth=strict_json.MAX_VALUE_DEPTH)
            except InputError:
                return {}, arguments
            return (value, None) if isinstance(value, dict) else ({}, arguments)
        case _:
            return {}, wire_text.json_text(arguments)


# Untyped JSON: convert a value to its expected type, or report where it does not match.


def expect(value: Any, shape: Any, path: str) -> Any:
    """Convert a wire value to its typed shape; raise `InvalidPayload` with the path if it does not match."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at `$")
        raise InvalidPayload(text, path=path + inner.rstrip("`")) from None


def text_or_none(value: Any) -> str | None:
    """Return text unchanged and None for anything else."""
    return value if isinstance(value, str) else None
