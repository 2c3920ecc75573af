"""The model port: one method that answers a request with a stream of events.

    request ──► model.stream ──► TextDelta … ReasoningDelta … ToolCallMade … UsageReported, Finished
                                      │
                                    Reply ──► the assistant's message

Streaming is the only way in, since whoever wants the whole answer can fold the stream, and nobody
can unfold an answer. A `Reply` does the folding event by event, so that a loop can show what comes,
and keep what it has when it is cancelled. An adapter gives ``Finished`` when the provider said so
and only then: a stream that ends without it was broken off.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from ..errors import ModelFailed
from ..message import Message, ToolCallRequest
from ..part import FilePart, ImagePart, OpaquePart, Part, ReasoningPart, TextPart
from ..toolspec import ToolSpec
from ..value import Value

__all__ = [
    "Completion",
    "FinishReason",
    "Finished",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "PartMade",
    "ReasoningDelta",
    "Reply",
    "TextDelta",
    "ToolCallMade",
    "UsageReported",
    "complete",
]

FinishReason = Literal["stop", "tool_calls", "length", "refusal", "other"]
"""Why a model stopped: done, waiting for tools, out of room, unwilling, or as the provider knows."""


class ModelRequest(Value, frozen=True, kw_only=True):
    """What a model is asked. ``settings`` go to the provider as they are: temperature and the like."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class TextDelta(Value, frozen=True, tag="text", tag_field="event"):
    """More words of the answer."""

    text: str


class ReasoningDelta(Value, frozen=True, tag="reasoning", tag_field="event"):
    """More of what the model thinks; the provider's signature ends a thought."""

    text: str = ""
    signature: str | None = None


class PartMade(Value, frozen=True, tag="part", tag_field="event"):
    """A part that comes as a whole: a picture, a file, a block of the provider's own."""

    part: ImagePart | FilePart | OpaquePart


class ToolCallMade(Value, frozen=True, tag="tool_call", tag_field="event"):
    """A call, once its arguments are complete."""

    call: ToolCallRequest


class UsageReported(Value, frozen=True, kw_only=True, tag="usage", tag_field="event"):
    """The tokens of the whole request so far; a later report takes the place of an earlier one."""

    input: int
    output: int
    cached: int = 0  # of the input


class Finished(Value, frozen=True, tag="finished", tag_field="event"):
    """The answer is complete."""

    reason: FinishReason = "stop"


ModelEvent = TextDelta | ReasoningDelta | PartMade | ToolCallMade | UsageReported | Finished


class Model(Protocol):
    """Something that answers requests."""

    @property
    def name(self) -> str:
        """The name that the catalog knows it by."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request, event by event; raise `ModelFailed` when the provider does not."""
        ...


class Completion(Value, frozen=True, kw_only=True):
    """A whole answer: the message, what it cost if the provider said so, and why it ended."""

    message: Message
    usage: UsageReported | None = None
    reason: FinishReason


class Reply:
    """An answer while it arrives."""

    def __init__(self) -> None:
        self.usage: UsageReported | None = None
        self.reason: FinishReason | None = None
        self._parts: list[Part] = []
        self._calls: list[ToolCallRequest] = []
        self._words: list[str] = []  # of the text that is under way …
        self._thoughts: list[str] = []  # … or of the thought; never of both

    def add(self, event: ModelEvent) -> None:
        """Fold in the next event."""
        match event:
            case TextDelta(text=text):
                self._end_thought(None)
                self._words.append(text)
            case ReasoningDelta(text=text, signature=signature):
                self._end_text()
                self._thoughts.append(text)
                if signature is not None:
                    self._end_thought(signature)
            case PartMade(part=part):
                self._end()
                self._parts.append(part)
            case ToolCallMade(call=call):
                self._calls.append(call)
            case UsageReported():
                self.usage = event
            case Finished(reason=reason):
                self.reason = reason

    def message(self, *, id: str | None = None, timestamp: str | None = None) -> Message | None:
        """Return the answer so far as the assistant's message; None while there is nothing to say."""
        self._end()
        content: str | list[Part] | None = self._parts or None
        if len(self._parts) == 1 and isinstance(self._parts[0], TextPart):
            content = self._parts[0].text
        if content is None and not self._calls:
            return None
        return Message.assistant(content, tool_calls=self._calls, id=id, timestamp=timestamp)

    def completion(self, *, id: str | None = None, timestamp: str | None = None) -> Completion | None:
        """Return the whole answer; None unless it is finished."""
        if self.reason is None:
            return None
        message = self.message(id=id, timestamp=timestamp) or Message.assistant(
            "", id=id, timestamp=timestamp
        )
        return Completion(message=message, usage=self.usage, reason=self.reason)

    def _end(self) -> None:
        self._end_text()
        self._end_thought(None)

    def _end_text(self) -> None:
        text, self._words = _joined(self._words), []
        last = self._parts[-1] if self._parts else None
        if text and isinstance(last, TextPart):
            self._parts[-1] = TextPart(last.text + text)
        elif text:
            self._parts.append(TextPart(text))

    def _end_thought(self, signature: str | None) -> None:
        text, self._thoughts = _joined(self._thoughts), []
        last = self._parts[-1] if self._parts else None
        if (text or signature) and isinstance(last, ReasoningPart) and last.signature is None:
            self._parts[-1] = ReasoningPart(last.text + text, signature)
        elif text or signature:
            self._parts.append(ReasoningPart(text, signature))


def _joined(pieces: list[str]) -> str:
    """Join what came in pieces, characters that were torn apart included."""
    return "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def complete(
    model: Model,
    request: ModelRequest,
    *,
    id: str | None = None,
    timestamp: str | None = None,
    patience: float | None = None,
) -> Completion:
    """Wait for the whole answer, for at most `patience` seconds.

    Raise `ModelFailed` with what there is of an answer that was broken off, and if the model raises
    ``CancelledError`` by itself. Raise ``TimeoutError`` once the time is over, even if the model ignores
    that its request is cancelled. A model that blocks the event loop itself cannot be interrupted.
    """
    loop = asyncio.get_running_loop()
    until = math.inf if patience is None else loop.time() + patience
    task = loop.create_task(_folded(model, request, until))
    try:
        await asyncio.wait([task], timeout=patience)
    finally:
        if not task.done():
            _give_up(task)
    if not task.done():
        raise TimeoutError(f"{model.name} has not finished its answer in time")
    if task.cancelled():
        raise ModelFailed(f"the request to {model.name} was cancelled by the model; ask again")
    reply = task.result()
    completion = reply.completion(id=id, timestamp=timestamp)
    if completion is None:
        partial = reply.message(id=id, timestamp=timestamp)
        raise ModelFailed(
            f"the answer of {model.name} ended before it was finished; ask again", partial=partial
        )
    return completion


async def _folded(model: Model, request: ModelRequest, until: float) -> Reply:
    reply, loop = Reply(), asyncio.get_running_loop()
    async for event in model.stream(request):
        if loop.time() >= until:  # a stream that ignores its cancellation ends here
            raise TimeoutError(f"{model.name} has not finished its answer in time")
        reply.add(event)
        await asyncio.sleep(0)  # a stream that never waits must not keep the loop from its timers
    return reply


_given_up = set[asyncio.Task[Reply]]()
"""Requests that were cancelled and have not ended yet; nobody waits for them."""


def _give_up(task: asyncio.Task[Reply]) -> None:
    task.cancel()
    _given_up.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[Reply]) -> None:
    _given_up.discard(task)
    if not task.cancelled():
        task.exception()  # seen, so that asyncio does not report it
