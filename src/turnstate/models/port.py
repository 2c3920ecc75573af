"""The model port: one method that answers a request with a stream of events.

    request ──► model.stream ──► TextDelta … ReasoningDelta … ToolCallMade … UsageReported, Finished
                                      │
                                    Reply ──► the assistant's message

    after a lost connection:     TextDelta … Retried, TextDelta … UsageReported, Finished

Streaming is the only interface, since a stream can be folded into a whole answer, but not the other way
around. A `Reply` folds event by event, so a loop can show the answer as it arrives and keep the part it has
when it is canceled. `Retried` means that the request is sent again: discard what has arrived of the answer.
An adapter yields `Finished` only if the provider reported the end: a stream that ends without it was
interrupted.
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

FinishReason = Literal["stop", "tool_calls", "length", "refusal", "other"]
"""Why a model stopped: done, waiting for tools, out of tokens, refused, or another reason."""


class ModelRequest(Value, frozen=True, kw_only=True):
    """A request to a model. ``settings``, such as the temperature, go to the provider unchanged.

    With a ``schema``, a JSON schema, the answer is JSON of that shape, as far as the provider supports it.
    Requests with the same ``cache_key`` share a beginning, which tells some providers where it is cached.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int | None = None
    schema: dict[str, Any] | None = None
    cache_key: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class TextDelta(Value, frozen=True, tag="text", tag_field="event"):
    """More text of the answer."""

    text: str


class ReasoningDelta(Value, frozen=True, tag="reasoning", tag_field="event"):
    """More of the model's reasoning; the provider's signature ends a reasoning block."""

    text: str = ""
    signature: str | None = None


class PartMade(Value, frozen=True, tag="part", tag_field="event"):
    """A part that arrives as a whole: an image, a file, or a block of the provider."""

    part: ImagePart | FilePart | OpaquePart


class ToolCallMade(Value, frozen=True, tag="tool_call", tag_field="event"):
    """A tool call, once its arguments are complete."""

    call: ToolCallRequest


class Answered(Value, frozen=True, tag="answer", tag_field="event"):
    """The whole answer as the provider sent it; it replaces what was assembled from the other events."""

    message: Message


class UsageReported(Value, frozen=True, kw_only=True, tag="usage", tag_field="event"):
    """The tokens of the whole request so far; a later report replaces an earlier one."""

    input: int
    output: int
    cached: int = 0  # of the input
    model: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)


class Retried(Value, frozen=True, kw_only=True, tag="retry", tag_field="event"):
    """The request failed and is sent again after ``pause`` seconds; discard the answer so far."""

    attempt: int  # the attempt that failed, counted from 1
    pause: float
    reason: str


class Finished(Value, frozen=True, tag="finished", tag_field="event"):
    """The answer is complete."""

    reason: FinishReason = "stop"


ModelEvent = (
    TextDelta | ReasoningDelta | PartMade | ToolCallMade | Answered | UsageReported | Retried | Finished
)


class Model(Protocol):
    """A model that answers requests."""

    @property
    def name(self) -> str:
        """The name of the model in the catalog."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request, event by event. Raise ModelFailed if the provider fails."""
        ...


class Completion(Value, frozen=True, kw_only=True):
    """A whole answer: the message, its usage if the provider reported it, and why it ended."""

    message: Message
    usage: UsageReported | None = None
    reason: FinishReason


class Reply:
    """An answer while it arrives."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.usage: UsageReported | None = None
        self.reason: FinishReason | None = None
        self._whole: Message | None = None
        self._parts: list[Part] = []
        self._calls: list[ToolCallRequest] = []
        self._words: list[str] = []  # of the current text …
        self._reasoning: list[str] = []  # … or the current reasoning; never both

    def add(self, event: ModelEvent) -> None:
        """Add the next event."""
        match event:
            case TextDelta(text=text):
                self._end_reasoning(None)
                self._words.append(text)
            case ReasoningDelta(text=text, signature=signature):
                self._end_text()
                self._reasoning.append(text)
                if signature is not None:
                    self._end_reasoning(signature)
            case PartMade(part=part):
                self._end()
                self._parts.append(part)
            case ToolCallMade(call=call):
                self._calls.append(call)
            case Answered(message=message):
                self._whole = message
            case UsageReported():
                self.usage = event
            case Retried():
                self._begin()
            case Finished(reason=reason):
                self.reason = reason

    def message(self, *, id: str | None = None, timestamp: str | None = None) -> Message | None:
        """Return the answer so far as the assistant's message; None while it is empty."""
        if self._whole is not None:
            given = {"id": id, "timestamp": timestamp}
            return msgspec.structs.replace(self._whole, **{k: v for k, v in given.items() if v is not None})
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
        self._end_reasoning(None)

    def _end_text(self) -> None:
        text, self._words = _joined(self._words), []
        last = self._parts[-1] if self._parts else None
        if text and isinstance(last, TextPart):
            self._parts[-1] = TextPart(last.text + text)
        elif text:
            self._parts.append(TextPart(text))

    def _end_reasoning(self, signature: str | None) -> None:
        text, self._reasoning = _joined(self._reasoning), []
        last = self._parts[-1] if self._parts else None
        if (text or signature) and isinstance(last, ReasoningPart) and last.signature is None:
            self._parts[-1] = ReasoningPart(last.text + text, signature)
        elif text or signature:
            self._parts.append(ReasoningPart(text, signature))


def _joined(pieces: list[str]) -> str:
    """Join pieces of text, and rejoin surrogate pairs that were split between them."""
    return "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def complete(
    model: Model,
    request: ModelRequest,
    *,
    id: str | None = None,
    timestamp: str | None = None,
    patience: float | None = None,
) -> Completion:
    """Return the whole answer; wait at most ``patience`` seconds.

    Raise ModelFailed if the stream was interrupted (with the partial answer) or if the model itself raised
    CancelledError. Raise TimeoutError when the time is up, even if the model ignores the cancellation. A
    model that blocks the event loop cannot be interrupted.
    """
    loop = asyncio.get_running_loop()
    until = math.inf if patience is None else loop.time() + patience
    task = loop.create_task(_folded(model, request, until))
    try:
        await asyncio.wait([task], timeout=patience)
    finally:
        if not task.done():
            _abandon(task)
    if not task.done():
        raise TimeoutError(f"{model.name} has not finished its answer in time")
    if task.cancelled():
        raise ModelFailed(f"the request to {model.name} was canceled by the model; try again")
    reply = task.result()
    completion = reply.completion(id=id, timestamp=timestamp)
    if completion is None:
        partial = reply.message(id=id, timestamp=timestamp)
        raise ModelFailed(f"the answer of {model.name} was interrupted; try again", partial=partial)
    return completion


async def _folded(model: Model, request: ModelRequest, until: float) -> Reply:
    reply, loop = Reply(), asyncio.get_running_loop()
    async for event in model.stream(request):
        if loop.time() >= until:  # a stream that ignores cancellation ends here
            raise TimeoutError(f"{model.name} has not finished its answer in time")
        reply.add(event)
        await asyncio.sleep(0)  # a stream that never waits must not starve the event loop's timers
    return reply


_abandoned = set[asyncio.Task[Reply]]()
"""Requests that were canceled and have not ended yet; nothing waits for them."""


def _abandon(task: asyncio.Task[Reply]) -> None:
    task.cancel()
    _abandoned.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[Reply]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
