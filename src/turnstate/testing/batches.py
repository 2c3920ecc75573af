"""The sound batches of a conversation: where they stand, and how to change what answers them.

A batch is sound when its calls are answered completely, once, and before anyone else speaks.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from ..ids import CallId
from ..message import Message, ToolCallRequest, ToolCallResult

__all__ = ["Batch", "batches", "renamed", "results", "without"]


class Batch(NamedTuple):
    """A soundly answered batch: where its call stands, and where its results end."""

    call: int
    end: int


def batches(messages: Sequence[Message], *, calls: int = 1) -> list[Batch]:
    """Find the sound batches of at least that many calls."""
    found = []
    for i, message in enumerate(messages):
        if len(message.tool_calls) < calls:
            continue
        answers = list(takewhile(lambda said: said.role == "tool", islice(messages, i + 1, None)))
        answered = sorted(result.tool_call_id for said in answers for result in said.tool_results)
        if answered == sorted(call.id for call in message.tool_calls):
            found.append(Batch(i, i + 1 + len(answers)))
    return found


def results(messages: Sequence[Message], batch: Batch) -> list[ToolCallResult]:
    """List what the calls of a batch gave."""
    return [result for said in messages[batch.call + 1 : batch.end] for result in said.tool_results]


def without(messages: list[Message], batch: Batch, lost: Container[CallId]) -> list[Message]:
    """Take these results out of the batch, and with them the tool messages that would be empty."""
    kept = []
    for said in messages[batch.call + 1 : batch.end]:
        rest = tuple(result for result in said.tool_results if result.tool_call_id not in lost)
        if rest:
            kept.append(said.replace(tool_results=rest))
    return [*messages[: batch.call + 1], *kept, *messages[batch.end :]]


def renamed(message: Message, old: CallId, new: CallId) -> Message:
    """Give a call another id, in the message that makes it or in one that answers it."""

    def call(request: ToolCallRequest) -> ToolCallRequest:
        return replace(request, id=new) if request.id == old else request

    def answer(result: ToolCallResult) -> ToolCallResult:
        return replace(result, tool_call_id=new) if result.tool_call_id == old else result

    if message.tool_calls:
        return message.replace(tool_calls=tuple(map(call, message.tool_calls)))
    return message.replace(tool_results=tuple(map(answer, message.tool_results)))
