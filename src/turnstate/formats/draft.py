"""Drafts: messages as a document tells them, before the core has settled their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from .. import sent
from ..ids import UNKNOWN_TIME, CallId, derived_id
from ..message import Message, Role, ToolCallRequest, ToolCallResult
from ..native import Native
from ..part import Content, FilePart, ImagePart, Part, TextPart
from .pairing import Answers, core_id

__all__ = ["Call", "Document", "Draft", "Result", "result_of_blocks", "settled"]


class Call(NamedTuple):
    """A call as a document tells it."""

    name: str
    args: dict[str, Any]
    id: str | None


class Result(NamedTuple):
    """A result as a document tells it: by id where it has one, else by the name of the tool."""

    id: str | None
    result: Any
    is_error: bool = False
    name: str | None = None


class Draft(Struct):
    """A message read from a document, before its ids are settled."""

    role: Role
    piece: Any
    content: Content | None = None
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    starts: bool | None = None


class Document(NamedTuple):
    """A payload taken apart; an envelope of None is a bare list, items that are text one question."""

    envelope: dict[str, Any] | None
    system: Any
    items: list[Any] | str


def result_of_blocks(blocks: Any, read: Callable[[dict[str, Any]], Part]) -> Any:
    """Read the blocks of a result as parts where all are words or media; no blocks are empty text."""
    if not isinstance(blocks, list):
        return blocks
    parts = [read(block) if isinstance(block, dict) else None for block in blocks]
    if not all(isinstance(part, TextPart | ImagePart | FilePart) for part in parts):
        return blocks
    return sent.result_of_parts(part for part in parts if part) if parts else ""


def settled(drafts: Sequence[Draft], native: Native) -> list[Message]:
    """Give drafts their ids: derived from position and content, results paired with calls."""
    answers, taken = Answers(), set[CallId]()
    messages: list[Message] = []
    for index, draft in enumerate(drafts):
        calls = tuple(_settled_call(call, index, taken) for call in draft.calls)
        results = tuple(
            ToolCallResult(
                tool_call_id=answers.answer(index, result.id, result.name),
                result=result.result,
                is_error=result.is_error,
            )
            for result in draft.results
        )
        answers.ask(calls)
        messages.append(
            Message(
                id=derived_id(index, msgspec.json.encode(draft.piece)),
                timestamp=UNKNOWN_TIME,
                role=draft.role,
                content=draft.content if draft.content or calls or results else "",
                tool_calls=calls,
                tool_results=results,
                kind="foreign" if draft.role == "system" else None,
                native=native,
            )
        )
    return messages


def _settled_call(call: Call, index: int, taken: set[CallId]) -> ToolCallRequest:
    id = core_id(call.id, index, taken)
    return ToolCallRequest(id=id, name=call.name or "unnamed", args=call.args, provider_id=call.id or None)
