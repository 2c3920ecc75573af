"""Turn a provider's response into a message.

An SDK object becomes plain JSON through its own methods (``model_dump``, ``to_dict``), so no SDK is imported.
The provider's module then determines which items of the response belong in the list of messages, and what
the provider reported with them. A stream is accumulated into the response that the provider would have sent
without streaming, so both go through the same code.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable, Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from ... import strict_json
from ...entry import Usage
from ...errors import InputError, InvalidPayload, ModelFailed, ReplyInterrupted, TooLarge
from ...message import UNPARSED, Message


class ReceivedMessage(Message, frozen=True, kw_only=True):
    """A message that a provider just sent, with the usage that it reported.

    `session.append` writes the usage as a separate entry after the message.
    """

    usage: Usage | None = None

    @classmethod
    def of(cls, message: Message, usage: Usage | None) -> ReceivedMessage:
        """Return a message with its reported usage."""
        return cls(**{name: getattr(message, name) for name in Message.__struct_fields__}, usage=usage)

    @property
    def without_usage(self) -> Message:
        """The message as stored in a log."""
        return Message(**{name: getattr(self, name) for name in Message.__struct_fields__})


class ResponseContent(NamedTuple):
    """The content of a response: the items that belong in the list of messages, and the reported usage."""

    items: list[Any]
    usage: Usage | None


class ResponseStream(Protocol):
    """Accumulates a provider's stream into a response."""

    def add(self, chunk: dict[str, Any]) -> str:
        """Process the next chunk and return its new text."""
        ...

    def response(self) -> dict[str, Any] | None:
        """Return the response; None if the stream has not ended."""
        ...


class Collector:
    """Collects a streamed reply: `add` each chunk, then call `reply`."""

    def __init__(self, stream: ResponseStream, reply: Callable[[Any], ReceivedMessage]) -> None:
        self._stream, self._reply = stream, reply

    def add(self, chunk: Any) -> str:
        """Process the next chunk, an SDK object or its JSON, and return its new text."""
        event = plain(chunk)
        try:
            return self._stream.add(event)
        except (AttributeError, IndexError, KeyError, TypeError) as error:  # it has an unexpected shape
            raise InvalidPayload(f"this is not a chunk of a reply: {event!r:.200}", path="$") from error

    def reply(self) -> ReceivedMessage:
        """Return the complete reply; raise `ReplyInterrupted` if the stream ended before it was complete."""
        response = self._stream.response()
        if response is None:
            raise ReplyInterrupted("the stream ended before the reply was complete; send the request again")
        return self._reply(response)


async def collected(
    collector: Collector, chunks: AsyncIterable[Any], on_text: Callable[[str], object] | None
) -> ReceivedMessage:
    """Collect the reply from an asynchronous stream."""
    async for chunk in chunks:
        if (text := collector.add(chunk)) and on_text:
            on_text(text)
    return collector.reply()


def plain(value: Any) -> Any:
    """Convert an SDK object to plain JSON values; bytes become base64 and times text, as on the wire."""
    try:
        return _plain(value)
    except RecursionError:
        raise TooLarge("the document is nested too deeply, or contains itself", path="$") from None


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value.value if isinstance(value, Enum) else value
        case Enum():
            return _plain(value.value)
        case str():
            return str.__str__(value)
        case Mapping():
            return {str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
    for method in ("model_dump", "to_dict", "isoformat"):
        if callable(dump := getattr(value, method, None)) and not isinstance(value, type):
            return _plain(dump())
    raise InvalidPayload(
        f"a value of type {type(value).__name__} is not a response; pass what the SDK returned, or its JSON"
    )


def failure(payload: Any, missing: str) -> ModelFailed | InvalidPayload:
    """Return the error for a response without a reply: the provider's error, or what is missing."""
    error = payload.get("error") if isinstance(payload, dict) else None
    if error:
        text = error.get("message") if isinstance(error, dict) else error
        return ModelFailed(f"the provider answered with an error: {text or error!s:.500}")
    return InvalidPayload(f"this is not a response from the provider: {missing}", path="$")


def whole(value: Any) -> int:
    """Return a reported number, or 0 if none was reported."""
    return value if type(value) is int and value >= 0 else 0


def reported(
    usage: Any,
    beside: Mapping[str, Any],
    *,
    input: int = 0,
    output: int = 0,
    cached: int = 0,
    model: Any = None,
) -> Usage | None:
    """Return what a provider reported: tokens, and other details of the request; None if nothing."""
    details = {key: value for key, value in beside.items() if type(value) in (str, int, float, bool)}
    if told := _without_nulls(usage):
        details["usage"] = told
    name = model if isinstance(model, str) else ""
    if not details and not name:
        return None
    return Usage(input=input, output=output, cached=cached, model=name, details=details)


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(item) for key, item in value.items() if item is not None}


def spelled_out(text: str) -> Any:
    """Parse the arguments of a streamed call; wrap their text in an object if they are not a JSON object.

    A value that is not an object must stay text: as a value, null would be taken for absent arguments.
    """
    try:
        value = strict_json.read(text, max_depth=strict_json.MAX_VALUE_DEPTH) if text else {}
    except InputError:
        return {UNPARSED: text}
    return value if isinstance(value, dict) else {UNPARSED: text}
